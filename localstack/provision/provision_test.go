package provision

import (
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"drawbridge/localstack/fakeaws"
	"drawbridge/localstack/template"
)

const projectTemplate = "../../template.yaml"

func open(t *testing.T, region string) aws.Config {
	t.Helper()
	server, err := fakeaws.Open(fakeaws.Options{AccessKey: "test", SecretKey: "testtest", Region: region})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return server.Config()
}

// declared is the project's table, with a change to the template's text.
func declared(t *testing.T, old, changed string) template.Table {
	t.Helper()
	text, err := os.ReadFile(projectTemplate)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), old) {
		t.Fatalf("the template has no %q", old)
	}
	got, err := template.Parse(projectTemplate, strings.Replace(string(text), old, changed, 1), template.Local())
	if err != nil {
		t.Fatal(err)
	}
	return got.Tables[0]
}

func TestTheTableIsMadeOnceAsDeclared(t *testing.T) {
	client := dynamodb.NewFromConfig(open(t, ""))
	table := declared(t, "", "")
	for start, want := range []bool{true, false} {
		if made, err := Table(t.Context(), client, table); err != nil || made != want {
			t.Fatalf("start %d: made %v, %v", start, made, err)
		}
	}
	found, err := Describe(t.Context(), client, table.Name)
	if err != nil {
		t.Fatal(err)
	}
	if err := match(table, found); err != nil {
		t.Error(err)
	}
	projections := map[string]types.ProjectionType{}
	for _, x := range found.LocalSecondaryIndexes {
		projections[aws.ToString(x.IndexName)] = x.Projection.ProjectionType
	}
	for _, x := range found.GlobalSecondaryIndexes {
		projections[aws.ToString(x.IndexName)] = x.Projection.ProjectionType
	}
	for name, want := range map[string]types.ProjectionType{"inbox": "ALL", "due": "KEYS_ONLY", "list": "KEYS_ONLY"} {
		if projections[name] != want {
			t.Errorf("index %s projects %q, want %s", name, projections[name], want)
		}
	}
	ttl, err := client.DescribeTimeToLive(t.Context(), &dynamodb.DescribeTimeToLiveInput{TableName: &table.Name})
	if err != nil {
		t.Fatal(err)
	}
	if d := ttl.TimeToLiveDescription; aws.ToString(d.AttributeName) != "ttl" || d.TimeToLiveStatus != types.TimeToLiveStatusEnabled {
		t.Errorf("time to live: %+v", d)
	}
}

func TestAStartThatEndedHalfwayIsFinishedByTheNext(t *testing.T) {
	client := dynamodb.NewFromConfig(open(t, ""))
	table := declared(t, "", "")
	if _, err := client.CreateTable(t.Context(), table.CreateInput()); err != nil {
		t.Fatal(err)
	}
	if on, err := expires(t.Context(), client, table); on || err != nil {
		t.Fatalf("before: %v, %v", on, err)
	}
	if _, err := Table(t.Context(), client, table); err != nil {
		t.Fatal(err)
	}
	if on, err := expires(t.Context(), client, table); !on || err != nil {
		t.Errorf("after: %v, %v", on, err)
	}
}

func TestATableOfAnOlderTemplateIsRefused(t *testing.T) {
	const key = "- {AttributeName: sk, KeyType: RANGE}"
	for _, c := range []struct{ name, old, changed, want string }{
		{"an index is missing", "- IndexName: list", "- IndexName: other",
			"table drawbridge-HubTable lacks the index list that the template declares"},
		{"an index has another key", "- {AttributeName: inbox_sk, KeyType: RANGE}", "- {AttributeName: due_sk, KeyType: RANGE}",
			"index inbox of table drawbridge-HubTable is local (due_sk RANGE, pk HASH) ALL, the template declares local (inbox_sk RANGE, pk HASH) ALL"},
		{"an index shows other attributes", "ProjectionType: ALL", "ProjectionType: KEYS_ONLY",
			"index inbox of table drawbridge-HubTable is local (inbox_sk RANGE, pk HASH) KEYS_ONLY, the template declares local (inbox_sk RANGE, pk HASH) ALL"},
		{"the table has another key", key, "- {AttributeName: list_sk, KeyType: RANGE}",
			"table drawbridge-HubTable has the key (list_sk RANGE, pk HASH), the template declares (pk HASH, sk RANGE)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := dynamodb.NewFromConfig(open(t, ""))
			older := declared(t, c.old, c.changed).CreateInput()
			older.AttributeDefinitions = used(older)
			if _, err := client.CreateTable(t.Context(), older); err != nil {
				t.Fatal(err)
			}
			made, err := Table(t.Context(), client, declared(t, "", ""))
			if made || err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("made %v, got  %v\nwant %s", made, err, c.want)
			}
		})
	}
}

// A global index cannot answer a strongly consistent query.
func TestAGlobalIndexIsNotTheLocalOneOfItsName(t *testing.T) {
	client, table := dynamodb.NewFromConfig(open(t, "")), declared(t, "", "")
	older := table.CreateInput()
	for _, x := range older.LocalSecondaryIndexes {
		older.GlobalSecondaryIndexes = append(slices.Clip(older.GlobalSecondaryIndexes),
			types.GlobalSecondaryIndex{IndexName: x.IndexName, KeySchema: x.KeySchema, Projection: x.Projection})
	}
	older.LocalSecondaryIndexes = nil
	if _, err := client.CreateTable(t.Context(), older); err != nil {
		t.Fatal(err)
	}
	if _, err := Table(t.Context(), client, table); err == nil || !strings.Contains(err.Error(), "index inbox of table drawbridge-HubTable is global") {
		t.Errorf("got %v", err)
	}
}

// used leaves out the attributes that no key names any more: AWS refuses them.
func used(in *dynamodb.CreateTableInput) []types.AttributeDefinition {
	named := map[string]bool{}
	note := func(keys []types.KeySchemaElement) {
		for _, k := range keys {
			named[aws.ToString(k.AttributeName)] = true
		}
	}
	note(in.KeySchema)
	for _, x := range in.LocalSecondaryIndexes {
		note(x.KeySchema)
	}
	for _, x := range in.GlobalSecondaryIndexes {
		note(x.KeySchema)
	}
	var out []types.AttributeDefinition
	for _, a := range in.AttributeDefinitions {
		if named[aws.ToString(a.AttributeName)] {
			out = append(out, a)
		}
	}
	return out
}

func TestStartsThatRaceMakeOneTableAndOneBucket(t *testing.T) {
	cfg := open(t, "")
	client, table := dynamodb.NewFromConfig(cfg), declared(t, "", "")
	buckets := s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true })
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			_, err := Table(t.Context(), client, table)
			if err == nil {
				_, err = Bucket(t.Context(), buckets, "race")
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if there, err := HasBucket(t.Context(), buckets, "race"); !there || err != nil {
		t.Errorf("the bucket is there: %v, %v", there, err)
	}
}

func TestABucketIsMadeInItsRegion(t *testing.T) {
	for _, region := range []string{"us-east-1", "eu-west-1"} {
		t.Run(region, func(t *testing.T) {
			client := s3.NewFromConfig(open(t, region), func(o *s3.Options) { o.UsePathStyle = true })
			for start, want := range []bool{true, false} {
				if made, err := Bucket(t.Context(), client, "queue"); err != nil || made != want {
					t.Errorf("start %d: made %v, %v", start, made, err)
				}
			}
		})
	}
}

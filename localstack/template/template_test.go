package template_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"drawbridge/localstack/template"
)

const projectTemplate = "../../template.yaml"

// stack has other values than the defaults, so that a test sees where each goes.
func stack() template.Stack {
	return template.Stack{Name: "demo", Region: "eu-west-1", Account: "111122223333", APIEndpoint: "http://hub.test"}
}

func parse(t *testing.T, src string) *template.Template {
	t.Helper()
	got, err := template.Parse("t.yaml", src, stack())
	if err != nil {
		t.Fatal(err)
	}
	return got
}

const frame = "Transform: AWS::Serverless-2016-10-31\n"

func TestTheProjectsTemplateLoads(t *testing.T) {
	got, err := template.Load(projectTemplate, template.Local())
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Tables) != 1 || len(got.Buckets) != 1 {
		t.Fatalf("want one table and one bucket, got %d and %d", len(got.Tables), len(got.Buckets))
	}
	table := got.Tables[0]
	if table.Name != "drawbridge-HubTable" || table.TTLAttribute != "ttl" {
		t.Errorf("table %s, TTL attribute %q", table.Name, table.TTLAttribute)
	}
	in := table.CreateInput()
	if len(in.LocalSecondaryIndexes) != 1 || len(in.GlobalSecondaryIndexes) != 6 || len(in.AttributeDefinitions) != 12 {
		t.Errorf("indexes and attributes: %d local, %d global, %d attributes",
			len(in.LocalSecondaryIndexes), len(in.GlobalSecondaryIndexes), len(in.AttributeDefinitions))
	}
	for _, f := range got.Functions {
		if f.Environment["TABLE_NAME"] != table.Name || f.Environment["BUCKET_NAME"] != got.Buckets[0].Name {
			t.Errorf("%s does not know its table and bucket: %v", f.LogicalID, f.Environment)
		}
	}
}

func TestEveryPolicyOfTheProjectIsExact(t *testing.T) {
	got, err := template.Load(projectTemplate, template.Local())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range got.Functions {
		for _, s := range f.Statements {
			if s.Effect == "Allow" {
				checkExact(t, f.LogicalID, s)
			}
		}
	}
}

// keyPrefix is the keys of a bucket below one prefix: objects have no names
// beforehand.
var keyPrefix = regexp.MustCompile(`\Aarn:aws:s3:::[a-z0-9.-]+/[a-z-]+/\*\z`)

// logStreams are those of one log group: Lambda names them.
var logStreams = regexp.MustCompile(`\Aarn:aws:logs:[^*]+:log-group:[^*]+:\*\z`)

func checkExact(t *testing.T, function string, s template.Statement) {
	t.Helper()
	for _, a := range s.Actions {
		if strings.Contains(a, "*") || a == "dynamodb:Scan" {
			t.Errorf("%s may do %s", function, a)
		}
	}
	for _, r := range s.Resources {
		onTable := strings.HasPrefix(r, "arn:aws:dynamodb:") && !strings.Contains(r, "/index/")
		if strings.Contains(r, "*") && !keyPrefix.MatchString(r) && !logStreams.MatchString(r) {
			t.Errorf("%s may act on %s", function, r)
		}
		if onTable && len(leadingKeys(s)) == 0 {
			t.Errorf("%s may do %v on every key of %s", function, s.Actions, r)
		}
	}
}

func leadingKeys(s template.Statement) []string {
	var keys []string
	for _, byKey := range s.Condition {
		keys = append(keys, byKey["dynamodb:LeadingKeys"]...)
	}
	return keys
}

func TestReferencesAreResolvedInShortAndLongForm(t *testing.T) {
	const src = frame + `
Parameters:
  Plain: {Type: String, Default: "d"}
  Count: {Type: Number, Default: 7}
Resources:
  Data:
    Type: AWS::DynamoDB::Table
    Properties:
      BillingMode: PAY_PER_REQUEST
      AttributeDefinitions: [{AttributeName: pk, AttributeType: S}]
      KeySchema: [{AttributeName: pk, KeyType: HASH}]
Outputs:
  A: {Value: !Ref Plain}
  B: {Value: {Ref: Count}}
  C: {Value: !GetAtt Data.Arn}
  D: {Value: {"Fn::GetAtt": [Data, Arn]}}
  E: {Value: !Sub "${Data}/${Data.Arn}/${AWS::Region}/${!kept}"}
  F: {Value: {"Fn::Sub": ["${x}-${Plain}", {x: !Ref Count}]}}
  G: {Value: !Ref AWS::AccountId}
`
	want := map[string]string{
		"A": "d",
		"B": "7",
		"C": "arn:aws:dynamodb:eu-west-1:111122223333:table/demo-Data",
		"D": "arn:aws:dynamodb:eu-west-1:111122223333:table/demo-Data",
		"E": "demo-Data/arn:aws:dynamodb:eu-west-1:111122223333:table/demo-Data/eu-west-1/${kept}",
		"F": "7-d",
		"G": "111122223333",
	}
	got := map[string]string{}
	for _, o := range parse(t, src).Outputs {
		got[o.Name] = o.Value
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

const oneFunction = frame + `
Globals:
  Function:
    Runtime: provided.al2023
    Architectures: [arm64]
    Timeout: 9
    Environment: {Variables: {SHARED: global, OWN: global}}
Resources:
  Api: {Type: AWS::Serverless::HttpApi}
  F:
    Type: AWS::Serverless::Function
    Metadata: {BuildMethod: makefile, Drawbridge: {Scope: agent, LocalPeriod: 10s}}
    Properties:
      Handler: thing
      Environment: {Variables: {OWN: function}}
      Role: !GetAtt R.Arn
      Events:
        Post: {Type: HttpApi, Properties: {ApiId: !Ref Api, Method: POST, Path: /thing, PayloadFormatVersion: "2.0", TimeoutInMillis: 1500}}
        Rest: {Type: HttpApi, Properties: {ApiId: !Ref Api, PayloadFormatVersion: "2.0"}}
        Tick: {Type: ScheduleV2, Properties: {ScheduleExpression: rate(5 minutes), Input: '{"x":1}'}}
  R:
    Type: AWS::IAM::Role
    Properties:
      AssumeRolePolicyDocument: {}
      Policies:
        - PolicyName: own
          PolicyDocument:
            Version: 2012-10-17
            Statement:
              - {Effect: Allow, Action: s3:GetObject, Resource: [a, b], Condition: {Bool: {k: "true"}}}
`

func TestAFunctionInheritsGlobalsAndKeepsItsOwn(t *testing.T) {
	got := parse(t, oneFunction).Functions[0]
	want := template.Function{
		LogicalID:   "F",
		Handler:     "thing",
		Scope:       "agent",
		Timeout:     9 * time.Second,
		Environment: map[string]string{"SHARED": "global", "OWN": "function"},
		Statements: []template.Statement{{
			Effect: "Allow", Actions: []string{"s3:GetObject"}, Resources: []string{"a", "b"},
			Condition: map[string]map[string][]string{"Bool": {"k": {"true"}}},
		}},
		Routes: []template.Route{
			{Method: "POST", Path: "/thing", Handler: "thing", LogicalID: "F", Timeout: 1500 * time.Millisecond},
			{Handler: "thing", LogicalID: "F", Timeout: 30 * time.Second},
		},
		Schedules: []template.Schedule{{
			Name: "FTick", Handler: "thing", LogicalID: "F", Every: 5 * time.Minute, Local: 10 * time.Second, Input: `{"x":1}`,
		}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if keys := []string{got.Routes[0].Key(), got.Routes[1].Key()}; !slices.Equal(keys, []string{"POST /thing", "$default"}) {
		t.Errorf("route keys %q", keys)
	}
}

func TestParametersTakeOverridesWithinTheirRules(t *testing.T) {
	const src = frame + `
Parameters:
  Level: {Type: String, Default: INFO, AllowedValues: [INFO, WARN]}
  Days: {Type: Number, Default: 3, MinValue: 1, MaxValue: 30}
  Name: {Type: String, Default: ab, AllowedPattern: "[a-z]+", MinLength: 2, MaxLength: 4}
Resources: {}
Outputs:
  All: {Value: !Sub "${Level} ${Days} ${Name}"}
`
	for _, c := range []struct {
		name  string
		given map[string]string
		want  string // the output, or a part of the error
		fails bool
	}{
		{"defaults", nil, "INFO 3 ab", false},
		{"overrides", map[string]string{"Level": "WARN", "Days": "30", "Name": "abcd"}, "WARN 30 abcd", false},
		{"a value that is not allowed", map[string]string{"Level": "LOUD"}, `"LOUD" is not one of the allowed values`, true},
		{"too large", map[string]string{"Days": "31"}, "breaks MaxValue 30", true},
		{"too small", map[string]string{"Days": "0"}, "breaks MinValue 1", true},
		{"no number", map[string]string{"Days": "x"}, `"x" is not a number`, true},
		{"only a part matches the pattern", map[string]string{"Name": "ab1"}, "does not match", true},
		{"too long", map[string]string{"Name": "abcde"}, "breaks MaxLength 4", true},
		{"unknown", map[string]string{"Colour": "red"}, "no parameter Colour", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := stack()
			s.Parameters = c.given
			got, err := template.Parse("t.yaml", src, s)
			switch {
			case c.fails && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("got error %v, want one with %q", err, c.want)
			case !c.fails && err != nil:
				t.Error(err)
			case !c.fails && got.Outputs[0].Value != c.want:
				t.Errorf("got %q, want %q", got.Outputs[0].Value, c.want)
			}
		})
	}
}

// Each file of testdata/refused is a template with one mistake. Its first line
// is a comment with the error it must give, from the line number on.
func TestWhatIsNotUnderstoodIsRefusedByNameAndLine(t *testing.T) {
	files, err := filepath.Glob("testdata/refused/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no test data: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			first, _, _ := strings.Cut(string(src), "\n")
			want := "t.yaml:" + strings.TrimPrefix(first, "# ")
			_, err = template.Parse("t.yaml", string(src), stack())
			if err == nil || err.Error() != want {
				t.Errorf("got  %v\nwant %s", err, want)
			}
		})
	}
}

func TestAllMistakesAreListedAndBounded(t *testing.T) {
	src := frame + "Resources:\n"
	for _, id := range strings.Split("abcdefghijklmnopqrstuvwxy", "") {
		src += "  " + id + ": {Type: AWS::No::Such}\n"
	}
	_, err := template.Parse("t.yaml", src, stack())
	var problems *template.Error
	if !errors.As(err, &problems) {
		t.Fatalf("got %v", err)
	}
	if len(problems.Problems) != 20 || problems.More != 5 {
		t.Errorf("%d problems and %d more", len(problems.Problems), problems.More)
	}
	if !strings.HasSuffix(err.Error(), "and 5 more") {
		t.Errorf("the error does not tell that there is more: %v", err)
	}
}

func TestAMissingFileIsNamed(t *testing.T) {
	_, err := template.Load(filepath.Join(t.TempDir(), "absent.yaml"), stack())
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "absent.yaml") {
		t.Errorf("got %v", err)
	}
}

func FuzzParse(f *testing.F) {
	project, err := os.ReadFile(projectTemplate)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(project))
	f.Add(oneFunction)
	files, err := filepath.Glob("testdata/refused/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(src))
	}
	f.Fuzz(func(t *testing.T, src string) {
		got, err := template.Parse("t.yaml", src, stack())
		if (got == nil) == (err == nil) {
			t.Fatalf("a template and an error, or neither: %v, %v", got, err)
		}
		var problems *template.Error
		if err != nil && !errors.As(err, &problems) {
			t.Fatalf("an error without lines: %v", err)
		}
	})
}

package template_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"

	"drawbridge/localstack/template"
)

func TestTheLifecycleOfABucketIsRead(t *testing.T) {
	const src = frame + `
Parameters:
  Days: {Type: Number, Default: 45}
Resources:
  B:
    Type: AWS::S3::Bucket
    Properties:
      LifecycleConfiguration:
        Rules:
          - {Id: all, Status: Enabled, NoncurrentVersionExpiration: {NoncurrentDays: 30}, AbortIncompleteMultipartUpload: {DaysAfterInitiation: 1}}
          - {Id: part, Status: Disabled, Prefix: p/, ExpirationInDays: !Ref Days}
          - {Id: markers, Status: Enabled, Prefix: m/, ExpiredObjectDeleteMarker: true}
  Plain:
    Type: AWS::S3::Bucket
`
	buckets := parse(t, src).Buckets
	got, err := json.Marshal(buckets[0].Lifecycle)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"ID":"all"`, `"NoncurrentDays":30`, `"DaysAfterInitiation":1`,
		`"ID":"part"`, `"Status":"Disabled"`, `"Prefix":"p/"`, `"Days":45`,
		`"ID":"markers"`, `"ExpiredObjectDeleteMarker":true`,
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("no %s in %s", want, got)
		}
	}
	if len(buckets[0].Lifecycle) != 3 || buckets[1].Lifecycle != nil {
		t.Errorf("rules %s, and %v of the other bucket", got, buckets[1].Lifecycle)
	}
}

// What holds a job, or a count of jobs, is never taken away; what replaces it may
// be. Any prefix that begins one of these, or lies below it, would reach them.
func TestTheProjectsRulesEndNoDocumentOfTheArchiveQueue(t *testing.T) {
	got, err := template.Load(projectTemplate, template.Local())
	if err != nil {
		t.Fatal(err)
	}
	days := map[string]int32{}
	for _, r := range got.Buckets[0].Lifecycle {
		if r.Expiration == nil || r.Expiration.Days == nil {
			continue
		}
		prefix := aws.ToString(r.Filter.Prefix)
		days[prefix] = *r.Expiration.Days
		for _, kept := range []string{"jobs/", "state/", "open/", "done/", "source/"} {
			if strings.HasPrefix(kept, prefix) || strings.HasPrefix(prefix, kept) {
				t.Errorf("rule %s takes current objects away under %s", aws.ToString(r.ID), kept)
			}
		}
	}
	// Without it the payloads of messages would stay for ever.
	if days["payload/"] != 45 {
		t.Errorf("expirations %v, want 45 days for payload/", days)
	}
}

package ddb_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"drawbridge/ddb"
)

type cannedAnswer string

func (c cannedAnswer) Do(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Request: r, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(string(c)))}, nil
}

// The caller compares the hash with the one it asked for: that says something
// only when it comes out of the answer.
func TestATokensRecordCarriesTheHashItIsStoredUnder(t *testing.T) {
	client := dynamodb.New(dynamodb.Options{
		Region: "us-east-1", Credentials: credentials.NewStaticCredentialsProvider("a", "b", ""), BaseEndpoint: aws.String("http://answers.invalid"),
		HTTPClient: cannedAnswer(`{"Item":{"pk":{"S":"token#another"},"sk":{"S":"token"}}}`),
	})
	token, found, err := ddb.Open(client, ddb.Table{Name: "hub"}).ReadToken(t.Context(), "asked-for")
	if err != nil || !found || token.Hash != "another" {
		t.Fatalf("got the record of %q, %t, %v", token.Hash, found, err)
	}
}

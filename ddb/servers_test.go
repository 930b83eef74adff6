package ddb_test

import (
	"crypto/rand"
	"os"
	"strings"
	"testing"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
)

// elsewhere tells whether the conformance suites are to run on the server that
// AWS_ENDPOINT_URL names instead of the embedded AWS. Such servers are slow, so
// that random tests are shorter there.
func elsewhere() bool { return os.Getenv("AWS_ENDPOINT_URL") != "" }

// either is what a test does on the embedded AWS, or elsewhere.
func either(embedded, other int) int {
	if elsewhere() {
		return other
	}
	return embedded
}

// newWorldUnderTest is a world on the server under test.
func newWorldUnderTest(t testing.TB) *world {
	t.Helper()
	if !elsewhere() {
		return newWorld(t)
	}
	cfg, err := config.LoadDefaultConfig(t.Context(), config.WithHTTPClient(awshttp.NewBuildableClient()))
	if err != nil {
		t.Fatal(err)
	}
	name := strings.ToLower(rand.Text())
	return openWorld(t, cfg, "hub-"+name, "payloads-"+name)
}

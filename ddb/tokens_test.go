package ddb_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"drawbridge/core"
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

// A record as the first release wrote it has no place in the list, no lifetime
// and nothing that it replaces.
func TestATokenOfAnEarlierReleaseIsReadAndListedOnceItIsSeen(t *testing.T) {
	w := newWorld(t)
	tokens := map[string]core.Token{}
	for _, secret := range []string{"kept", "revoked", "rotated"} {
		hash := core.TokenHash(secret)
		tokens[secret] = core.Token{Hash: hash, Name: secret, Scopes: []core.Scope{core.ScopeAgent}, AgentIDs: []string{"a1"}, CreatedAt: 7}
		list := func(text string) types.AttributeValue {
			return &types.AttributeValueMemberL{Value: []types.AttributeValue{&types.AttributeValueMemberS{Value: text}}}
		}
		_, err := w.client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: aws.String(w.table), Item: map[string]types.AttributeValue{
			"pk": &types.AttributeValueMemberS{Value: "token#" + hash}, "sk": &types.AttributeValueMemberS{Value: "token"},
			"token_name": &types.AttributeValueMemberS{Value: secret}, "scopes": list("agent"), "agent_ids": list("a1"),
			"created_ms": &types.AttributeValueMemberN{Value: "7"}, "expires_ms": &types.AttributeValueMemberN{Value: "0"},
			"revoked_ms": &types.AttributeValueMemberN{Value: "0"},
		}})
		if err != nil {
			t.Fatal(err)
		}
		if got, found, err := w.store.ReadToken(t.Context(), hash); err != nil || !found || !reflect.DeepEqual(got, tokens[secret]) {
			t.Fatalf("read %+v, %t, %v", got, found, err)
		}
	}
	if fresh, err := w.store.CreateToken(t.Context(), core.Token{Hash: tokens["kept"].Hash, Name: "another", Scopes: []core.Scope{core.ScopeOperator}}); err != nil || fresh {
		t.Fatal(fresh, err)
	}
	for secret, change := range map[string]func(context.Context, core.Token, core.Instant) (core.Token, bool, error){
		"revoked": w.store.RevokeToken, "rotated": w.store.ExpireToken,
	} {
		if _, found, err := change(t.Context(), tokens[secret], 9); err != nil || !found {
			t.Fatal(secret, found, err)
		}
	}
	listed, next, err := w.store.ListTokens(t.Context(), "", 10)
	if err != nil || next != "" || len(listed) != 3 {
		t.Fatalf("listed %+v, %q, %v", listed, next, err)
	}
	for _, got := range listed {
		want := tokens[got.Name]
		want.RevokedAt = map[string]core.Instant{"revoked": 9}[got.Name]
		want.ExpiresAt = map[string]core.Instant{"rotated": 9}[got.Name]
		if !reflect.DeepEqual(got, want) {
			t.Errorf("listed %+v, want %+v", got, want)
		}
	}
}

// Nothing but garbage collection removes a record, long after its token's end.
func TestATokensRecordOutlivesItsEndByAYear(t *testing.T) {
	w := newWorld(t)
	ctx, day := t.Context(), int64(24*60*60)
	endless := core.Token{Hash: core.TokenHash("endless"), CreatedAt: 1}
	ends := core.Token{Hash: core.TokenHash("ends"), CreatedAt: 1, ExpiresAt: core.Instant(400 * day * 1000)}
	for _, token := range []core.Token{endless, ends} {
		if _, err := w.store.CreateToken(ctx, token); err != nil {
			t.Fatal(err)
		}
	}
	collected := func(token core.Token) string {
		t.Helper()
		out, err := w.client.GetItem(ctx, &dynamodb.GetItemInput{TableName: aws.String(w.table), Key: map[string]types.AttributeValue{
			"pk": &types.AttributeValueMemberS{Value: "token#" + token.Hash}, "sk": &types.AttributeValueMemberS{Value: "token"},
		}})
		if err != nil {
			t.Fatal(err)
		}
		if at, ok := out.Item["ttl"].(*types.AttributeValueMemberN); ok {
			return at.Value
		}
		return "never"
	}
	if got := collected(endless); got != "never" {
		t.Errorf("a token without an end is collected at %s", got)
	}
	if got, want := collected(ends), fmt.Sprint((400+365)*day+1); got != want {
		t.Errorf("collected at %s, want %s", got, want)
	}
	if _, _, err := w.store.ExpireToken(ctx, ends, core.Instant(10*day*1000)); err != nil {
		t.Fatal(err)
	}
	if got, want := collected(ends), fmt.Sprint((10+365)*day+1); got != want {
		t.Errorf("collected at %s, want %s", got, want)
	}
	if _, _, err := w.store.RevokeToken(ctx, endless, core.Instant(20*day*1000)); err != nil {
		t.Fatal(err)
	}
	if got, want := collected(endless), fmt.Sprint((20+365)*day+1); got != want {
		t.Errorf("collected at %s, want %s", got, want)
	}
}

package functions

import (
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
)

// How the deployed functions talk to AWS. All of it together stays well below
// the gateway's 30 s.
const (
	awsAttempts       = 4
	awsAttemptTimeout = 3 * time.Second
	// A connection that was idle for longer is not used again: AWS may have
	// closed it while the sandbox was frozen, and finding that out costs a
	// failed attempt (aws-sdk-go-v2#3423).
	awsIdleTimeout = 10 * time.Second
	// The first retry comes soon: most failures are one lost packet or one
	// throttled partition, and a client waits.
	awsFirstBackoff = 25 * time.Millisecond
	awsMaxBackoff   = time.Second
)

// ForLambda sets timeouts and retries of a configuration for a function that
// answers a waiting client and is frozen between requests.
func ForLambda(cfg aws.Config) aws.Config {
	transport := awshttp.NewBuildableClient().GetTransport()
	if client, ok := cfg.HTTPClient.(*awshttp.BuildableClient); ok {
		transport = client.GetTransport() // with the CA bundle of the environment
	}
	transport.IdleConnTimeout = awsIdleTimeout
	transport.MaxIdleConnsPerHost = 128 // a batch goes out in parallel
	cfg.HTTPClient = &http.Client{
		Transport:     &thawedTransport{Transport: transport, now: time.Now},
		Timeout:       awsAttemptTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	cfg.Retryer = func() aws.Retryer {
		return retry.NewStandard(func(o *retry.StandardOptions) {
			o.MaxAttempts = awsAttempts
			o.Backoff = retry.BackoffDelayerFunc(backoff)
		})
	}
	return cfg
}

// backoff is the wait before a retry: random, up to a bound that doubles.
func backoff(attempt int, _ error) (time.Duration, error) {
	bound := min(awsFirstBackoff<<min(attempt, 10), awsMaxBackoff)
	return rand.N(bound), nil
}

// thawedTransport drops the idle connections after a pause. The transport's own
// timer cannot: it stands still while the sandbox is frozen, as the monotonic
// clock does. The wall clock does not.
type thawedTransport struct {
	*http.Transport
	now func() time.Time

	mu   sync.Mutex
	last time.Time
}

func (t *thawedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.wasIdle() {
		t.CloseIdleConnections()
	}
	return t.Transport.RoundTrip(withPlainBody(r))
}

// withPlainBody hides the body's WriteTo. The SDK closes a request's body once
// the answer's head is there; a closed body's WriteTo reports io.EOF as an error
// (smithy-go 1.28.9), which the transport, still looking for excess bytes,
// takes for a failed request: it then drops the connection in the middle of the answer.
// Read reports the end as the end.
func withPlainBody(r *http.Request) *http.Request {
	if r.Body == nil || r.Body == http.NoBody {
		return r
	}
	plain := *r
	plain.Body = struct{ io.ReadCloser }{r.Body}
	return &plain
}

func (t *thawedTransport) wasIdle() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now().Round(0) // the wall clock only
	idle := now.Sub(t.last) > awsIdleTimeout
	t.last = now
	return idle
}

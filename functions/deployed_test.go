package functions

import (
	"cmp"
	"context"
	"net/http/httptest"
	"os"
	"time"

	"drawbridge/localstack/lambda"
	"drawbridge/localstack/template"
)

// emulator is the path of AWS's runtime interface emulator. Where it is given, the
// test hubs' functions run behind it, as the binary that DRAWBRIDGE_BOOTSTRAP names,
// and not in this process: make rie runs those tests so that neither move the clock
// nor look into the process.
func emulator() string { return os.Getenv("DRAWBRIDGE_RIE") }

// startOfTime is where a test hub's clock stands: deployed functions have their own.
func startOfTime() time.Time {
	if emulator() != "" {
		return time.Now()
	}
	return time.UnixMilli(1_700_000_000_000)
}

// deploy has every function run in a process of its own.
func (h *testHub) deploy() {
	h.t.Helper()
	stack := template.Local()
	stack.Names = map[string]string{"QueueBucket": "payloads"}
	stack.Parameters = map[string]string{"CorsOrigins": "https://dashboard.example.com"}
	declared, err := template.Load("../template.yaml", stack)
	must(h.t, err)
	credentials, err := h.aws.Config().Credentials.Retrieve(context.Background())
	must(h.t, err)
	socket := httptest.NewServer(h.aws)
	pool := lambda.NewPool(lambda.Runtime{
		Emulator: emulator(), Bootstrap: cmp.Or(os.Getenv("DRAWBRIDGE_BOOTSTRAP"), "bootstrap"),
		Environment: map[string]string{
			"AWS_ENDPOINT_URL": socket.URL, "AWS_REGION": stack.Region,
			"AWS_ACCESS_KEY_ID": credentials.AccessKeyID, "AWS_SECRET_ACCESS_KEY": credentials.SecretAccessKey,
		},
	}, declared)
	h.t.Cleanup(func() {
		pool.Close()
		socket.CloseClientConnections()
		socket.Close()
	})
	h.deployed = pool
}

// handler is the function of this name, wherever it runs; false when there is none.
func (h *testHub) handler(name string) (HTTPHandler, bool) {
	if h.deployed != nil {
		return h.deployed.HTTP(name)
	}
	return h.app.HTTP(name)
}

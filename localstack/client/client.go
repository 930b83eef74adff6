// Package client asks a hub over HTTP, for the commands and measurements of
// localstack.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

const (
	// timeout is above what a hub takes to answer at most.
	timeout = 35 * time.Second
	// maxAnswer bounds what is read of an answer, in bytes: above Lambda's own.
	maxAnswer = 16 << 20
)

// A Client asks one hub with one token. It is safe for concurrent use.
type Client struct {
	url, token string
	http       *http.Client
}

// New makes a client that keeps a connection open for each of so many callers.
func New(url, token string, callers int) *Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = callers, callers
	transport.DisableCompression = true // it would cost more than loopback saves
	return &Client{
		url: strings.TrimSuffix(url, "/"), token: token,
		http: &http.Client{Transport: transport, Timeout: timeout},
	}
}

// A Refusal is an answer of the hub that is not the wanted one.
type Refusal struct {
	Status    int `json:"-"`
	Code      string
	Message   string
	Retryable bool
}

func (r *Refusal) Error() string { return r.Code + ": " + r.Message }

// Post calls an endpoint, such as "register" or "queue/claim", and decodes the
// data of its answer into what into points to, where that is not nil. It is a
// *Refusal when the hub refuses; any other error says that no answer came, so
// that the operation may have been done.
func (c *Client) Post(ctx context.Context, endpoint string, body, into any) error {
	encoded, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode the request: %w", err)
	}
	return c.do(ctx, http.MethodPost, "/bridge/"+endpoint, encoded, into)
}

// Get reads an endpoint with a query, such as "status?scope=hub".
func (c *Client) Get(ctx context.Context, endpoint string, into any) error {
	return c.do(ctx, http.MethodGet, "/bridge/"+endpoint, nil, into)
}

func (c *Client) do(ctx context.Context, method, path string, body []byte, into any) error {
	status, text, err := c.Send(ctx, method, path, body)
	if err != nil {
		return err
	}
	var answer struct {
		OK    bool
		Data  json.RawMessage
		Error Refusal
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return fmt.Errorf("read the hub's answer, status %d: %w", status, err)
	}
	if !answer.OK {
		answer.Error.Status = status
		return &answer.Error
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(answer.Data, into); err != nil {
		return fmt.Errorf("read the hub's answer: %w", err)
	}
	return nil
}

// Send makes a request to a path of the hub and returns what came, whatever its
// status. An error says that no whole answer came.
func (c *Client) Send(ctx context.Context, method, path string, body []byte) (status int, text []byte, err error) {
	r, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, &Refusal{Code: "bad_url", Message: err.Error()}
	}
	r.Header.Set("Authorization", "Bearer "+c.token)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return 0, nil, fmt.Errorf("ask the hub: %w", err)
	}
	defer resp.Body.Close()
	text, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return 0, nil, fmt.Errorf("read the hub's answer: %w", err)
	}
	return resp.StatusCode, text, nil
}

package access

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
)

// A Caller calls a service that responds with Answer and Refuse.
type Caller struct {
	Service string // "the director", in errors
	HTTP    *http.Client
	Token   string // bearer token; empty: none
	Most    int64  // most bytes to read of an answer
}

// A Refusal is the error of a service that refused a request.
type Refusal struct {
	Service string
	Status  int    // HTTP status
	Message string // the reason
}

func (e *Refusal) Error() string {
	return fmt.Sprintf("%s answers %d: %s", e.Service, e.Status, e.Message)
}

// Call sends in as JSON and decodes the answer into out; either may be nil. If the service
// refuses, the error is a *Refusal.
func (c *Caller) Call(ctx context.Context, method, url string, in, out any) error {
	ask := func(err error) error { return fmt.Errorf("ask %s: %w", c.Service, err) }
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return ask(err)
		}
		body = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return ask(err)
	}
	if in != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.Token != "" {
		r.Header.Set("Authorization", "Bearer "+c.Token)
	}
	response, err := c.HTTP.Do(r)
	if err != nil {
		return ask(err)
	}
	defer response.Body.Close() // the body is read to its end
	text, err := io.ReadAll(io.LimitReader(response.Body, c.Most))
	if err == nil && response.StatusCode < 300 && out != nil {
		err = json.Unmarshal(text, out)
	}
	if err != nil {
		return fmt.Errorf("read the answer of %s: %w", c.Service, err)
	}
	if response.StatusCode >= 300 {
		return &Refusal{c.Service, response.StatusCode, reason(text)}
	}
	return nil
}

// reason returns the error message that Refuse wrote, or the whole text of any other answer.
func reason(text []byte) string {
	var refusal struct{ Error string }
	if err := json.Unmarshal(text, &refusal); err != nil || refusal.Error == "" {
		return strings.TrimSpace(string(text))
	}
	return refusal.Error
}

// BySocket returns a transport that connects to a unix socket, whatever the URL is.
func BySocket(path string) *http.Transport {
	return &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
}

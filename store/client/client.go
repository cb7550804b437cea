// Package client is a client for both APIs of a store: the plain one (/kv), and
// Nudsf_DataRepository with Nudsf_Timer (3GPP TS 29.598). It does not import the server's code.
package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"vitrine/store/nudsf/wire"
)

// Config of a client.
type Config struct {
	Base  string      // "http://127.0.0.1:8070"; several stores over the same records with commas between them
	Token string      // bearer token, which needs https beyond loopback; "": none
	TLS   *tls.Config // for https; nil: the host's roots
	HTTP1 bool        // over http, use HTTP/1.1 instead of HTTP/2 with prior knowledge
	Conns int         // idle connections to keep; 0: 64

	Wrap func(http.RoundTripper) http.RoundTripper // may be nil; sees each request
}

// A Client may be used from any goroutine.
type Client struct {
	servers *servers
	token   string
	http    *http.Client
	idle    interface{ CloseIdleConnections() } // below Config.Wrap
}

// deadAfter is the time without a frame after which the client pings an HTTP/2 connection,
// and also the timeout of the ping. Without pings, a request on a connection that the
// network lost would wait for TCP's retransmissions.
const deadAfter = 5 * time.Second

// New returns a client. It connects on the first request.
func New(c Config) (*Client, error) {
	all, scheme, err := parseBases(c.Base)
	if err != nil {
		return nil, err
	}
	if c.Token != "" && scheme == "http" {
		if err := all.checkLoopback(); err != nil {
			return nil, err
		}
	}
	protocols := new(http.Protocols)
	switch {
	case c.HTTP1:
		protocols.SetHTTP1(true)
	case scheme == "http":
		protocols.SetUnencryptedHTTP2(true)
	default:
		protocols.SetHTTP1(true)
		protocols.SetHTTP2(true)
	}
	if c.Conns == 0 {
		c.Conns = 64
	}
	dialer := new(net.Dialer)
	if len(all.all) > 1 {
		dialer.Timeout = dialWithin
	}
	var transport http.RoundTripper = &http.Transport{
		DialContext: dialer.DialContext,
		Protocols:   protocols, TLSClientConfig: c.TLS, DisableCompression: true,
		MaxIdleConns: c.Conns, MaxIdleConnsPerHost: c.Conns, IdleConnTimeout: 90 * time.Second,
		HTTP2: &http.HTTP2Config{SendPingTimeout: deadAfter, PingTimeout: deadAfter},
	}
	idle := transport.(interface{ CloseIdleConnections() })
	if c.Wrap != nil {
		transport = c.Wrap(transport)
	}
	return &Client{servers: all, token: c.Token, http: &http.Client{Transport: transport}, idle: idle}, nil
}

// Close closes idle connections.
func (c *Client) Close() { c.idle.CloseIdleConnections() }

// ClockAhead returns how far this host's clock is ahead of the stores' clocks, to about a second; it is
// negative if the clock is behind. Of several stores, the one with the nearest clock counts, so that one
// wrong store does not matter. ClockAhead returns 0 before an answer had a Date (RFC 9110 section 6.6.1).
func (c *Client) ClockAhead() time.Duration { return c.servers.clockAhead(time.Now()) }

// Conditions of a request: entity tags, or "*". The zero value means no conditions.
type Conditions struct {
	IfMatch     string
	IfNoneMatch string
}

// An Error is a response with a status other than 2xx or 304.
type Error struct {
	Status     int
	Problem    wire.Problem  // the store's problem details; the plain API sets only Title and Status
	ETag       string        // with 412: tag of the current entity; may be empty
	RetryAfter time.Duration // with 429 and 503; 0: none
}

func (e *Error) Error() string {
	if e.Problem.Title == "" && e.Problem.Detail == "" {
		return "store: " + strconv.Itoa(e.Status) + " " + http.StatusText(e.Status)
	}
	return "store: " + e.Problem.Error()
}

// ErrNotModified means that the entity has one of the tags of IfNoneMatch.
var ErrNotModified = errors.New("store: not modified")

// NotFound reports whether err is a 404 answer.
func NotFound(err error) bool { return status(err) == http.StatusNotFound }

// Unmet reports whether err is a 412 answer: a condition does not hold.
func Unmet(err error) bool { return status(err) == http.StatusPreconditionFailed }

func status(err error) int {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Status
	}
	return 0
}

// A request is a request to the store.
type request struct {
	method, path string // path is escaped and includes the query
	contentType  string
	encoding     string // Content-Transfer-Encoding
	body         []byte
	accept       string
	conditions   Conditions
}

// A reply is a response with its whole body.
type reply struct {
	status int
	header http.Header
	body   []byte
}

func (r *reply) etag() string { return r.header.Get("ETag") }

// maxReply bounds an answer, in bytes.
const maxReply = 64 << 20

func (c *Client) do(ctx context.Context, q request) (*reply, error) {
	response, err := c.open(ctx, q)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxReply+1))
	if err != nil {
		return nil, fmt.Errorf("store: read the answer to %s %s: %w", q.method, q.path, err)
	}
	if len(body) > maxReply {
		return nil, fmt.Errorf("store: the answer to %s %s is over %d bytes", q.method, q.path, maxReply)
	}
	return &reply{response.StatusCode, response.Header, body}, nil
}

// open returns a successful response. The caller closes its body.
func (c *Client) open(ctx context.Context, q request) (*http.Response, error) {
	response, err := c.send(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	if response.StatusCode >= 200 && response.StatusCode < 300 {
		return response, nil
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode == http.StatusNotModified {
		return nil, ErrNotModified
	}
	e := &Error{Status: response.StatusCode, ETag: response.Header.Get("ETag")}
	if body, err := io.ReadAll(io.LimitReader(response.Body, 64<<10)); err == nil {
		_ = json.Unmarshal(body, &e.Problem) // a proxy may answer with anything
	}
	e.Problem.Status = response.StatusCode
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil {
		e.RetryAfter = time.Duration(seconds) * time.Second
	}
	return nil, e
}

// send sends a request to the stores in turn, until one of them answers.
func (c *Client) send(ctx context.Context, q request) (response *http.Response, err error) {
	order := c.servers.order()
	var connected *atomic.Bool // nil: the request may go to the next store in any case, or there is none
	if q.method != http.MethodGet && len(order) > 1 {
		ctx, connected = trace(ctx)
	}
	for _, s := range order {
		sent := time.Since(c.servers.began)
		response, err = c.sendTo(ctx, s.base, q)
		if err == nil {
			s.answered()
			c.servers.readClock(s, response.Header, sent)
			return response, nil
		}
		if !errors.Is(ctx.Err(), context.Canceled) { // cancellation does not mean that the store failed
			c.servers.failed(s)
		}
		if ctx.Err() != nil || connected != nil && connected.Load() { // a store may have made the write
			break
		}
	}
	return nil, err
}

// sendTo sends a request to the store at base.
func (c *Client) sendTo(ctx context.Context, base string, q request) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, q.method, base+q.path, bytes.NewReader(q.body))
	if err != nil {
		return nil, err
	}
	for name, value := range map[string]string{
		"Content-Type": q.contentType, "Content-Transfer-Encoding": q.encoding, "Accept": q.accept, "If-Match": q.conditions.IfMatch, "If-None-Match": q.conditions.IfNoneMatch,
	} {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	return c.http.Do(r)
}

// parse decodes a JSON answer.
func parse[T any](r *reply) (T, error) {
	var v T
	if err := json.Unmarshal(r.body, &v); err != nil {
		return v, fmt.Errorf("store: read the answer: %w", err)
	}
	return v, nil
}

func marshal(v any) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("store: write %T: %w", v, err)
	}
	return body, nil
}

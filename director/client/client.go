package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"vitrine"
	"vitrine/internal/access"
)

// An Access says where a director is and how to authenticate.
type Access struct {
	URL         string // such as http://127.0.0.1:8090, or unix:/run/vitrine/director.sock
	Token       string // sent as Authorization: Bearer; empty: that of TokenFile
	TokenFile   string // file with the token, on the first line that is not empty and not a # comment; empty: none
	Authorities string // PEM file of the authorities that certify the director; empty: the host's
	Certificate string // PEM file of the client's own certificate; empty: none
	Key         string // PEM file of its key
}

// A Client controls one director. It may be used by several goroutines.
type Client struct {
	given  Access
	base   *url.URL
	caller atomic.Pointer[access.Caller]
}

// An Error is the director's error response.
type Error struct {
	Status  int // of HTTP
	Message string
}

func (e *Error) Error() string {
	return fmt.Sprintf("the director answers %d: %s", e.Status, e.Message)
}

// unixScheme begins an Access.URL that is the path of a unix socket.
const unixScheme = "unix:"

// timeout bounds each call.
const timeout = 30 * time.Second

// New returns a client, which connects on first use. With http and without a token, it
// uses the director's unix socket if this user has one for that address.
func New(a Access) (*Client, error) {
	text := a.URL
	if strings.HasPrefix(text, unixScheme) {
		text = "http://director"
	}
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	base, err := url.Parse(text)
	if err != nil || base.Host == "" || (base.Scheme != "http" && base.Scheme != "https") {
		return nil, &vitrine.BadInput{File: a.URL, Found: "not a director's address", Want: "want one such as http://127.0.0.1:8090 or unix:/run/director.sock"}
	}
	c := &Client{given: a, base: base}
	if err := c.Refresh(); err != nil {
		return nil, err
	}
	return c, nil
}

// Refresh reads the files of the Access again, for new requests. It closes idle connections,
// because the director checked the old certificate when they began. After an error the old
// token and certificates stay in use.
func (c *Client) Refresh() error {
	token, err := access.ReadToken(c.given.TokenFile)
	if err != nil {
		return err
	}
	token = cmp.Or(c.given.Token, token)
	if token != "" && c.base.Scheme == "http" && !c.isHere() {
		return &vitrine.BadInput{File: c.given.URL, Found: "an address without TLS for a token", Want: "https://" + c.base.Host + ": beyond loopback a director needs TLS"}
	}
	secure, err := access.ClientTLS(c.given.Certificate, c.given.Key, c.given.Authorities)
	if err != nil {
		return err
	}
	transport := &http.Transport{TLSClientConfig: secure, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute}
	switch socket, isSocket := strings.CutPrefix(c.given.URL, unixScheme); {
	case isSocket:
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return dialSocket(ctx, socket) }
	case c.base.Scheme == "http" && token == "":
		// A starting director may answer over TCP before it has its socket, so each call
		// looks for the socket again.
		transport.DialContext, transport.DisableKeepAlives = dialControl, true
	}
	old := c.caller.Swap(&access.Caller{
		Service: "the director", HTTP: &http.Client{Timeout: timeout, Transport: transport}, Token: token, Most: 64 << 20,
	})
	if old != nil {
		old.HTTP.CloseIdleConnections()
	}
	return nil
}

// isHere reports whether the address is a unix socket or a loopback address. Without TLS, a director
// serves no other address and no name but localhost.
func (c *Client) isHere() bool {
	return strings.HasPrefix(c.given.URL, unixScheme) || access.IsLoopback(c.base.Hostname())
}

// call sends in as JSON and reads the answer into out; either may be nil.
func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	err := c.caller.Load().Call(ctx, method, c.base.JoinPath(path).String(), in, out)
	if refusal := (*access.Refusal)(nil); errors.As(err, &refusal) {
		return &Error{refusal.Status, refusal.Message}
	}
	return err
}

// Status returns the director's state.
func (c *Client) Status(ctx context.Context) (s Status, err error) {
	return s, c.call(ctx, http.MethodGet, "/v1/status", nil, &s)
}

// Instances returns all instances, by name.
func (c *Client) Instances(ctx context.Context) (all []Instance, err error) {
	err = c.call(ctx, http.MethodGet, "/v1/instances", nil, &all)
	for i := range all {
		all[i].director = c.given.URL
	}
	return all, err
}

// Instance returns one instance.
func (c *Client) Instance(ctx context.Context, name string) (Instance, error) {
	return c.callOn(ctx, http.MethodGet, name, nil)
}

// Put adds an instance, or replaces the instance of that name. The result has its ID:
// give that ID to the other directors beside this one.
func (c *Client) Put(ctx context.Context, in vitrine.Instance) (Instance, error) {
	return c.callOn(ctx, http.MethodPut, in.Name, in)
}

// callOn makes a request about one instance. The director answers with that instance and its counts.
func (c *Client) callOn(ctx context.Context, method, name string, in any) (out Instance, err error) {
	err = c.call(ctx, method, instancePath(name), in, &out)
	out.director = c.given.URL
	return out, err
}

func instancePath(name string) string { return "/v1/instances/" + url.PathEscape(name) }

// PutAll replaces all instances in one epoch.
func (c *Client) PutAll(ctx context.Context, all []vitrine.Instance) error {
	return c.call(ctx, http.MethodPut, "/v1/instances", append([]vitrine.Instance{}, all...), nil) // never null
}

// Alter changes an instance's weight, state or region. The answer has no counts.
func (c *Client) Alter(ctx context.Context, name string, change Change) (in vitrine.Instance, err error) {
	return in, c.call(ctx, http.MethodPatch, instancePath(name), change, &in)
}

// AlterAll changes instances by their names in one epoch: all or none.
func (c *Client) AlterAll(ctx context.Context, changes map[string]Change) error {
	if changes == nil {
		changes = map[string]Change{} // JSON null is no object
	}
	return c.call(ctx, http.MethodPatch, "/v1/instances", changes, nil)
}

// Drain lets an instance finish its work and take nothing new. The answer has no counts.
func (c *Client) Drain(ctx context.Context, name string) (vitrine.Instance, error) {
	state := vitrine.Draining
	return c.Alter(ctx, name, Change{State: &state})
}

// Remove removes an instance from the table.
func (c *Client) Remove(ctx context.Context, name string) error {
	return c.call(ctx, http.MethodDelete, instancePath(name), nil, nil)
}

// Leases returns the leases that are held, by type.
func (c *Client) Leases(ctx context.Context) (all []Lease, err error) {
	return all, c.call(ctx, http.MethodGet, "/v1/leases", nil, &all)
}

// Lease returns the lease of a type, whether it is held or not.
func (c *Client) Lease(ctx context.Context, typeName string) (l Lease, err error) {
	return l, c.call(ctx, http.MethodGet, leasePath(typeName), nil, &l)
}

// Acquire takes the lease of a type. An *Error with status 409 says that another holder has
// it, or that the token is stale. Give the token of the answer to the other directors beside
// this one.
func (c *Client) Acquire(ctx context.Context, typeName string, r LeaseRequest) (l Lease, err error) {
	return l, c.call(ctx, http.MethodPost, leasePath(typeName), r, &l)
}

// Renew prolongs a lease and may change its weights. An *Error with status 409 says that the
// token is stale: the lease is over, or another one has begun.
func (c *Client) Renew(ctx context.Context, typeName string, token uint64, change LeaseChange) (l Lease, err error) {
	return l, c.call(ctx, http.MethodPatch, leasePath(typeName)+"/"+strconv.FormatUint(token, 10), change, &l)
}

// Release ends a lease. If the director has not seen the token yet, an acquisition with it
// that is still on its way will be refused.
func (c *Client) Release(ctx context.Context, typeName string, token uint64) (l Lease, err error) {
	return l, c.call(ctx, http.MethodDelete, leasePath(typeName)+"/"+strconv.FormatUint(token, 10), nil, &l)
}

func leasePath(typeName string) string { return "/v1/leases/" + url.PathEscape(typeName) }

// Rules returns the rules in force.
func (c *Client) Rules(ctx context.Context) (all []Rule, err error) {
	return all, c.call(ctx, http.MethodGet, "/v1/rules", nil, &all)
}

// PutRules replaces the rules.
func (c *Client) PutRules(ctx context.Context, all []Rule) error {
	return c.call(ctx, http.MethodPut, "/v1/rules", append([]Rule{}, all...), nil)
}

// PutRooms replaces the rooms.
func (c *Client) PutRooms(ctx context.Context, all []Room) error {
	return c.call(ctx, http.MethodPut, "/v1/rooms", append([]Room{}, all...), nil)
}

// Explain tells where a message would go and why.
func (c *Client) Explain(ctx context.Context, q Question) (e Explanation, err error) {
	return e, c.call(ctx, http.MethodPost, "/v1/explain", q, &e)
}

// Reload reads the configuration file again.
func (c *Client) Reload(ctx context.Context) error {
	return c.call(ctx, http.MethodPost, "/v1/reload", nil, nil)
}

// Restart hands over to a new process. It returns when the hand-over has begun. If Status then shows
// another PID, the new process serves. If it shows a new Restart, the hand-over has failed.
func (c *Client) Restart(ctx context.Context) error {
	return c.call(ctx, http.MethodPost, "/v1/restart", nil, nil)
}

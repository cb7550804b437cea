// Package rest carries HTTP/1.1 requests between the components of the IMS.
package rest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vitrine/internal/truth"
	"vitrine/reference/ims"
	"vitrine/reference/ims/socket"
)

// ErrLate is wrapped by the error for a late answer. ErrUnreachable is wrapped by
// the error for a service without a reachable instance.
var (
	ErrLate        = errors.New("no answer in time")
	ErrUnreachable = errors.New("cannot be reached")
)

// setAside is how long a failed instance is skipped.
const setAside = 5 * time.Second

// maxBody limits the answers that are read, in bytes.
const maxBody = 1 << 20

// A Client sends requests to one service through a pool of open connections to
// all of its instances. Its methods may be called concurrently.
type Client struct {
	name      string
	instances []*instance
	http      *http.Client
	timeout   time.Duration
	began     time.Time // origin of instance.aside; a step of the host's clock has no effect
	asides    prometheus.Counter

	Messages *truth.Log // nil: messages are not logged
}

type instance struct {
	base  string
	aside atomic.Int64 // time since Client.began until which the instance is skipped
}

// NewClient returns a client of the service. name appears in errors and metrics.
// connections is the number of idle connections kept open to each instance.
func NewClient(name string, addrs []netip.AddrPort, connections int, timeout time.Duration, local netip.Addr, metrics prometheus.Registerer) *Client {
	dialer := &net.Dialer{Timeout: timeout, LocalAddr: &net.TCPAddr{IP: local.AsSlice()}}
	c := &Client{
		name: name, timeout: timeout, began: time.Now(),
		http: &http.Client{Transport: &http.Transport{
			DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				c, err := dialer.DialContext(ctx, network, addr)
				if err != nil {
					return nil, err
				}
				return socket.TCP(c)
			},
			MaxIdleConnsPerHost: connections,
			IdleConnTimeout:     time.Minute,
			DisableCompression:  true,
		}},
		asides: ims.Counters(metrics, name)("set_aside", "Times that an instance of "+name+" was set aside."),
	}
	for _, a := range addrs {
		c.instances = append(c.instances, &instance{base: "http://" + a.String()})
	}
	return c
}

// Close closes the idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Do sends the request to an instance chosen at random among those not set aside.
// If that fails before the timeout, it tries each other instance once, those set
// aside last. An answer of any status is a success. Do does not try again if the
// first instance may still do the work, which is after a late answer, or if it may
// have done work that must not be done twice, which is after a POST was sent.
func (c *Client) Do(ctx context.Context, method, path string, body []byte) (status int, answer []byte, err error) {
	limited, cancel := context.WithTimeout(c.Messages.Client(ctx, method+" "+path), c.timeout)
	defer cancel()
	var failed error
	for _, in := range c.inOrder() {
		status, answer, err := c.ask(limited, in, method, path, body)
		if err == nil {
			return status, answer, nil
		}
		if ctx.Err() != nil { // the caller's, which says nothing about the instance
			return 0, nil, fmt.Errorf("%s at %s: %w", c.name, in.base, context.Cause(ctx))
		}
		in.aside.Store(int64(time.Since(c.began) + setAside))
		c.asides.Inc()
		if limited.Err() != nil {
			return 0, nil, fmt.Errorf("%s at %s: %w after %s", c.name, in.base, ErrLate, c.timeout)
		}
		failed = err
		if dial, ok := errors.AsType[*net.OpError](err); method == http.MethodPost && (!ok || dial.Op != "dial") {
			break
		}
	}
	return 0, nil, fmt.Errorf("%s: %w: %w", c.name, ErrUnreachable, failed)
}

// inOrder returns the instances from a random one on, those set aside last.
func (c *Client) inOrder() []*instance {
	now, first := int64(time.Since(c.began)), rand.IntN(len(c.instances))
	var usable, aside []*instance
	for i := range c.instances {
		in := c.instances[(first+i)%len(c.instances)]
		if in.aside.Load() > now {
			aside = append(aside, in)
		} else {
			usable = append(usable, in)
		}
	}
	return append(usable, aside...)
}

func (c *Client) ask(ctx context.Context, in *instance, method, path string, body []byte) (int, []byte, error) {
	var reader io.Reader
	if body != nil {
		reader = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, in.base+path, reader)
	if err != nil {
		return 0, nil, err
	}
	if method != http.MethodPost {
		// An empty key is not sent. It lets the transport repeat a PUT on a new
		// connection if an idle connection turns out to be closed.
		req.Header["Idempotency-Key"] = nil
	}
	res, err := c.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxBody))
	return res.StatusCode, answer, err
}

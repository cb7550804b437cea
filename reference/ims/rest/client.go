// Package rest is how the components of the IMS ask each other over HTTP/1.1.
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

	"vitrine/reference/ims/socket"
)

// ErrLate is wrapped by the error of an answer that did not come in time, and
// ErrUnreachable by that of a service none of whose instances could be reached.
var (
	ErrLate        = errors.New("no answer in time")
	ErrUnreachable = errors.New("cannot be reached")
)

// setAside is how long an instance that could not be reached is passed over.
const setAside = 5 * time.Second

// maxBody bounds the answers that are read, in bytes.
const maxBody = 1 << 20

// A Client asks one service through a pool of connections kept open to all of
// its instances. Its methods may be called at the same time.
type Client struct {
	name      string
	instances []*instance
	http      *http.Client
	timeout   time.Duration
	asides    prometheus.Counter
}

type instance struct {
	base  string
	aside atomic.Int64 // until when it is passed over, unix nanoseconds
}

// NewClient makes a client of the service; name is for errors and metrics.
// connections is how many are kept open to each instance.
func NewClient(name string, addrs []netip.AddrPort, connections int, timeout time.Duration, local netip.Addr, metrics prometheus.Registerer) *Client {
	dialer := &net.Dialer{Timeout: timeout, LocalAddr: &net.TCPAddr{IP: local.AsSlice()}}
	c := &Client{
		name: name, timeout: timeout,
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
		asides: prometheus.NewCounter(prometheus.CounterOpts{
			Name: name + "_set_aside_total", Help: "Times that an instance of " + name + " was set aside.",
		}),
	}
	metrics.MustRegister(c.asides)
	for _, a := range addrs {
		c.instances = append(c.instances, &instance{base: "http://" + a.String()})
	}
	return c
}

// Close lets go of the idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Do asks an instance chosen at random among those not set aside; another one
// when it cannot be connected to. An answer of any status is no error. A late
// answer is, and is not asked for again: the first may still do its work.
func (c *Client) Do(ctx context.Context, method, path string, body []byte) (status int, answer []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	first := rand.IntN(len(c.instances))
	var failed error
	// Twice round: first without the instances set aside, then with them alone.
	for round := range 2 {
		now := time.Now().UnixNano()
		for i := range c.instances {
			in := c.instances[(first+i)%len(c.instances)]
			if (in.aside.Load() > now) != (round == 1) {
				continue
			}
			status, answer, err := c.ask(ctx, in, method, path, body)
			if err == nil {
				return status, answer, nil
			}
			in.aside.Store(time.Now().Add(setAside).UnixNano())
			c.asides.Inc()
			if ctx.Err() != nil {
				return 0, nil, fmt.Errorf("%s at %s: %w after %s", c.name, in.base, ErrLate, c.timeout)
			}
			failed = err
		}
	}
	return 0, nil, fmt.Errorf("%s: %w: %w", c.name, ErrUnreachable, failed)
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
	res, err := c.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxBody))
	return res.StatusCode, answer, err
}

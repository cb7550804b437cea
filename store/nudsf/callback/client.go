package callback

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// maxRemembered bounds the receivers whose protocol is remembered.
const maxRemembered = 4096

// A client posts messages to receivers. For https URIs TLS negotiates the protocol. For http URIs it is
// HTTP/2 with prior knowledge, as 5G functions use it (TS 29.500 clause 5.2.1), or HTTP/1.1 for
// receivers without it.
type client struct {
	http1, http2 *http.Client // http1 also serves https, with HTTP/2 by ALPN
	timeout      time.Duration

	mu    sync.Mutex
	known map[string]*http.Client // http1 or http2, by authority
}

func newClient(config Config) *client {
	// A redirect counts as an answer. Following it would let receivers choose where the store sends
	// data.
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	// Dialing ends well before a try, so that a receiver that cannot be reached does not look like a
	// silent one.
	dialer := &net.Dialer{Timeout: config.Timeout / 2, Control: config.Targets.control}
	build := func(set func(*http.Protocols)) *http.Client {
		protocols := new(http.Protocols)
		set(protocols)
		return &http.Client{CheckRedirect: stay, Transport: &http.Transport{
			Protocols:              protocols,
			DialContext:            dialer.DialContext,
			MaxIdleConnsPerHost:    config.Lanes,
			MaxIdleConns:           config.Receivers,
			IdleConnTimeout:        30 * time.Second,
			MaxResponseHeaderBytes: 16 << 10,
			DisableCompression:     true,
			// Without pings, messages on a connection that the network lost would wait for TCP's
			// retransmissions.
			HTTP2: &http.HTTP2Config{SendPingTimeout: config.Timeout, PingTimeout: config.Timeout},
		}}
	}
	return &client{
		http1:   build(func(p *http.Protocols) { p.SetHTTP1(true); p.SetHTTP2(true) }),
		http2:   build(func(p *http.Protocols) { p.SetHTTP2(true); p.SetUnencryptedHTTP2(true) }),
		timeout: config.Timeout, known: map[string]*http.Client{},
	}
}

func (c *client) close() {
	c.http1.CloseIdleConnections()
	c.http2.CloseIdleConnections()
}

// post makes one try. It returns nil on 2xx, and *Refused or *Denied if another try would not help.
func (c *client) post(ctx context.Context, m waiting) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	name := authority(m.url)
	by := c.http1
	if m.url.Scheme != "https" {
		by = c.remembered(name)
	}
	if by != nil {
		return c.check(name, c.try(ctx, by, m))
	}
	// The protocol is unknown. A server of HTTP/1.1 rejects the preface of HTTP/2 before it sees
	// the message, so trying both does not send the message twice.
	err := c.try(ctx, c.http2, m)
	switch {
	case answered(err):
		c.remember(name, c.http2)
		return err
	case unreachable(err):
		return err
	case ctx.Err() != nil: // the receiver may have the message, so HTTP/1.1 waits for the next try
		c.mu.Lock()
		if _, ok := c.known[name]; !ok { // no other message has found the protocol meanwhile
			c.set(name, c.http1)
		}
		c.mu.Unlock()
		return err
	}
	again := c.try(ctx, c.http1, m)
	if answered(again) {
		c.remember(name, c.http1)
	}
	return again
}

// check forgets the protocol of a receiver that was reached but did not answer. Another program may
// listen there now.
func (c *client) check(name string, err error) error {
	if !answered(err) && !unreachable(err) {
		c.mu.Lock()
		delete(c.known, name)
		c.mu.Unlock()
	}
	return err
}

func unreachable(err error) bool {
	var dial *net.OpError
	return errors.As(err, &dial) && dial.Op == "dial"
}

// A transient is a failure status that may change on another try.
type transient struct{ status int }

func (e *transient) Error() string { return fmt.Sprintf("the receiver answered %d", e.status) }

// answered reports whether the receiver sent an HTTP response.
func answered(err error) bool {
	var refused *Refused
	var later *transient
	return err == nil || errors.As(err, &refused) || errors.As(err, &later)
}

func (c *client) try(ctx context.Context, client *http.Client, m waiting) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, m.url.String(), bytes.NewReader(m.Body))
	if err != nil {
		return fmt.Errorf("callback to %s: %w", m.Target, err)
	}
	request.Header.Set("Content-Type", m.ContentType)
	request.Header.Set("3gpp-Sbi-Callback", m.Kind)
	request.Header.Set("User-Agent", "UDSF")
	if m.ContentLocation != "" {
		request.Header.Set("Content-Location", m.ContentLocation)
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("callback: %w", err)
	}
	_, _ = io.CopyN(io.Discard, response.Body, 4<<10) // so that the connection can be reused
	_ = response.Body.Close()
	switch status := response.StatusCode; {
	case status >= 200 && status < 300:
		return nil
	case status >= 500, status == http.StatusTooManyRequests, status == http.StatusRequestTimeout, status == http.StatusTooEarly:
		return &transient{status}
	default:
		return &Refused{Status: status}
	}
}

// remembered returns the HTTP client for a receiver; nil if its protocol is unknown.
func (c *client) remembered(name string) *http.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known[name]
}

func (c *client) remember(name string, by *http.Client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set(name, by)
}

// set remembers a protocol. The caller holds c.mu.
func (c *client) set(name string, by *http.Client) {
	for other := range c.known {
		if len(c.known) < maxRemembered {
			break
		}
		delete(c.known, other)
	}
	c.known[name] = by
}

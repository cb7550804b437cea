package client

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"vitrine/internal/access"
)

// pause is the time after a failure in which a store gets no request while another store
// answers. Then one request tries it again.
const pause = time.Second

// dialWithin limits the time to connect to one of several stores, so that a request has time
// left for another one.
const dialWithin = 500 * time.Millisecond

// servers are the stores of a client. They share their records.
type servers struct {
	all   []*server
	turn  atomic.Uint32
	began time.Time // origin of the times of a server; a step of the host's clock has no effect
}

type server struct {
	base  string
	retry atomic.Int64 // time since servers.began at which the store is tried again; 0: it answers
	clock atomic.Int64 // what the store's clock showed at servers.began, in Unix nanoseconds; 0: unknown
	read  atomic.Int64 // time since servers.began of the last readClock; 0: none
}

// parseBases parses the URLs of Config.Base. All have the scheme that it returns.
func parseBases(text string) (s *servers, scheme string, err error) {
	s = &servers{began: time.Now()}
	for base := range strings.SplitSeq(text, ",") {
		base = strings.TrimSpace(base)
		u, err := url.Parse(base)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, "", fmt.Errorf("store client: base %q: give http://HOST:PORT or https://HOST:PORT", base)
		}
		if scheme != "" && scheme != u.Scheme {
			return nil, "", fmt.Errorf("store client: base %q: give http or https for all stores", text)
		}
		scheme = u.Scheme
		s.all = append(s.all, &server{base: strings.TrimRight(base, "/")})
	}
	return s, scheme, nil
}

// checkLoopback returns an error if a store is beyond loopback.
func (s *servers) checkLoopback() error {
	for _, v := range s.all {
		if u, err := url.Parse(v.base); err != nil || !access.IsLoopback(u.Hostname()) {
			return fmt.Errorf("store client: base %q: the token would travel without TLS: give https://HOST:PORT", v.base)
		}
	}
	return nil
}

// order returns the stores in the order in which to try them for a request: a store whose
// pause is over, then the stores that answer, in turn, then the others.
func (s *servers) order() []*server {
	if len(s.all) == 1 {
		return s.all
	}
	now := int64(time.Since(s.began))
	var due, up, down []*server
	for _, v := range s.all {
		switch retry := v.retry.Load(); {
		case retry == 0:
			up = append(up, v)
		case len(due) == 0 && now >= retry && v.retry.CompareAndSwap(retry, now+int64(pause)):
			due = append(due, v)
		default:
			down = append(down, v)
		}
	}
	if len(up) > 1 {
		first := int(s.turn.Add(1) % uint32(len(up)))
		up = slices.Concat(up[first:], up[:first])
	}
	return slices.Concat(due, up, down)
}

func (s *servers) failed(v *server) { v.retry.Store(int64(time.Since(s.began) + pause)) }

func (v *server) answered() {
	if v.retry.Load() != 0 {
		v.retry.Store(0)
	}
}

// readEvery is the shortest time between two reads of a store's clock. Requests are frequent, and their
// dates are in whole seconds.
const readEvery = time.Second

// readClock corrects what is known of a store's clock by the Date of its answer. sent is the time since
// servers.began at which the request was sent. A date bounds the clock to a second plus the round-trip
// time. The correction is as small as these bounds allow, and begins with this host's clock: so a slow
// answer does no harm.
func (s *servers) readClock(v *server, header http.Header, sent time.Duration) {
	received := time.Since(s.began)
	if last := v.read.Load(); last != 0 && received-time.Duration(last) < readEvery {
		return
	}
	v.read.Store(int64(received))
	date, err := http.ParseTime(header.Get("Date"))
	if err != nil {
		return
	}
	low, high := date.Add(-received).UnixNano(), date.Add(time.Second-sent).UnixNano()
	v.clock.Store(min(max(cmp.Or(v.clock.Load(), s.began.UnixNano()), low), high))
}

// clockAhead returns the difference between this host's clock at now and the nearest clock of a store.
func (s *servers) clockAhead(now time.Time) time.Duration {
	var nearest time.Duration
	known := false
	for _, v := range s.all {
		clock := v.clock.Load()
		if clock == 0 {
			continue
		}
		ahead := now.Round(0).Sub(time.Unix(0, clock).Add(now.Sub(s.began)))
		if !known || ahead.Abs() < nearest.Abs() {
			nearest, known = ahead, true
		}
	}
	return nearest
}

// trace returns a context for a write, and whether the write got a connection, with its TLS handshake.
// Without one, no store has the write. net/http sends a write again only if no store has it, so the last
// connection counts.
func trace(ctx context.Context) (context.Context, *atomic.Bool) {
	connected := new(atomic.Bool)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { connected.Store(false) },
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	}), connected
}

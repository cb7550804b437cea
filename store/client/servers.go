package client

import (
	"errors"
	"fmt"
	"net"
	"net/http"
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
	began time.Time // origin of server.retry; a step of the host's clock has no effect
}

type server struct {
	base  string
	retry atomic.Int64 // time since servers.began at which the store is tried again; 0: it answers
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

// repeatable reports whether a failed request may go to another store. The first store must
// not have got the request, unless the request changes nothing.
func repeatable(method string, err error) bool {
	var dial *net.OpError
	return method == http.MethodGet || errors.As(err, &dial) && dial.Op == "dial"
}

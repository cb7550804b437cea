package truth

import (
	"context"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"strconv"
	"sync"
)

// key is the key of an Event in a context.
type key struct{}

// With returns a context with the event. If the event is zero, With returns ctx.
func With(ctx context.Context, e Event) context.Context {
	if e == 0 {
		return ctx
	}
	return context.WithValue(ctx, key{}, e)
}

// From returns the event of a context, or zero.
func From(ctx context.Context) Event {
	e, _ := ctx.Value(key{}).(Event)
	return e
}

// Client returns a context that logs its HTTP/1.1 requests and their answers. It logs
// them with the context's event or, if there is none, with a new one.
func (l *Log) Client(ctx context.Context, name string) context.Context {
	if l == nil {
		return ctx
	}
	e := From(ctx)
	if e == 0 {
		e = l.Begin()
	}
	var mu sync.Mutex // the transport calls from several goroutines
	var own, peer netip.AddrPort
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(c httptrace.GotConnInfo) {
			mu.Lock()
			defer mu.Unlock()
			own, peer = AddrPort(c.Conn.LocalAddr()), AddrPort(c.Conn.RemoteAddr())
		},
		WroteRequest: func(w httptrace.WroteRequestInfo) {
			mu.Lock()
			defer mu.Unlock()
			if w.Err == nil {
				l.http(Line{Src: own, Dst: peer, Name: name, Event: e})
			}
		},
		GotFirstResponseByte: func() {
			mu.Lock()
			defer mu.Unlock()
			l.http(Line{Src: peer, Dst: own, Name: "answer to " + name, Event: e, Received: true})
		},
	})
}

// MarkHeader is the header with the number that Mark gives to a request. The number says nothing
// about the event. It identifies the request in a capture, and the HTTP/2 stream then identifies
// the answer.
const MarkHeader = "Vitrine-Message"

// Mark returns a round tripper that numbers each request, and logs the request and its
// answer. It logs them with the event of the request's context or, if there is none,
// with a new one. It is for HTTP/2, where several requests share a connection.
func (l *Log) Mark(next http.RoundTripper) http.RoundTripper {
	if l == nil {
		return next
	}
	return marker{l, next}
}

type marker struct {
	log  *Log
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (m marker) RoundTrip(r *http.Request) (*http.Response, error) {
	of := From(r.Context())
	if of == 0 {
		of = m.log.Begin()
	}
	number := strconv.FormatUint(m.log.marks.Add(1), 10)
	var own, peer netip.AddrPort
	ctx := httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) {
		own, peer = AddrPort(c.Conn.LocalAddr()), AddrPort(c.Conn.RemoteAddr())
	}})
	r = r.Clone(ctx)
	r.Header.Set(MarkHeader, number)
	response, err := m.next.RoundTrip(r)
	if err == nil {
		name := r.Method + " " + r.URL.Path
		m.log.Write(Line{Src: own, Dst: peer, Protocol: HTTP, Name: name, Event: of, Key: number})
		m.log.Write(Line{Src: peer, Dst: own, Received: true, Protocol: HTTP, Name: "answer to " + name, Event: of, Key: number})
	}
	return response, err
}

// http logs an HTTP message. Its key is the message's ordinal in its direction.
func (l *Log) http(m Line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := pair{m.Src, m.Dst}
	m.Protocol, m.Key = HTTP, Ordinal(l.ordinals[of])
	l.ordinals[of]++
	l.append(&m)
}

// Server returns a handler that logs requests and their answers.
func (l *Log) Server(h http.Handler) http.Handler {
	if l == nil {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		own := AddrPort(local)
		peer, _ := netip.ParseAddrPort(r.RemoteAddr)
		e := l.Begin()
		l.http(Line{Src: peer, Dst: own, Name: r.Method + " " + r.URL.Path, Event: e, Received: true})
		h.ServeHTTP(w, r.WithContext(With(r.Context(), e)))
		l.http(Line{Src: own, Dst: peer, Name: "answer to " + r.Method + " " + r.URL.Path, Event: e})
	})
}

// AddrPort returns the address of a TCP or UDP connection, or a zero one.
func AddrPort(a net.Addr) netip.AddrPort {
	var of netip.AddrPort
	switch a := a.(type) {
	case *net.TCPAddr:
		of = a.AddrPort()
	case *net.UDPAddr:
		of = a.AddrPort()
	}
	return netip.AddrPortFrom(of.Addr().Unmap(), of.Port())
}

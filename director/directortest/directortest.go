// Package directortest holds helpers that the tests of the director's packages share.
package directortest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"
)

// Serve calls run in the background until the test ends or stop is called. run must then
// return context.Canceled. Afterwards Serve calls end.
func Serve(t testing.TB, run func(context.Context) error, end func() error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
		if err := end(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// Answer answers the datagrams to an address until the test ends, and returns the bound
// address. An empty reply is not sent.
func Answer(t testing.TB, address string, reply func(message []byte) []byte) (bound string) {
	t.Helper()
	var l net.ListenConfig
	c, err := l.ListenPacket(t.Context(), "udp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	go func() {
		in := make([]byte, 65536)
		for {
			n, from, err := c.ReadFrom(in)
			if err != nil {
				return
			}
			if out := reply(in[:n]); len(out) > 0 {
				_, _ = c.WriteTo(out, from)
			}
		}
	}()
	return c.LocalAddr().String()
}

// Response returns a response with the status to a SIP request.
func Response(request []byte, status int64) []byte {
	_, headers, _ := bytes.Cut(request, []byte("\r\n"))
	return append(fmt.Appendf(nil, "SIP/2.0 %d OK\r\n", status), headers...)
}

// ServeAt answers SIP requests to a UDP address until ctx ends, one after the other and at most
// so many per second. It paces itself instead of using up a CPU, so that its capacity does not
// depend on what else the host does. It prints a line when it is ready.
func ServeAt(ctx context.Context, capacity float64, address string) error {
	var l net.ListenConfig
	c, err := l.ListenPacket(ctx, "udp", address)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	fmt.Println("ready on", address)
	type job struct {
		answer []byte
		to     net.Addr
	}
	jobs := make(chan job, 1<<14)
	go func() {
		each := time.Duration(float64(time.Second) / capacity)
		free := time.Now()
		for j := range jobs {
			if now := time.Now(); free.Before(now) {
				free = now
			}
			free = free.Add(each)
			time.Sleep(time.Until(free))
			_, _ = c.WriteTo(j.answer, j.to) // a lost answer is a lost call, which tests count
		}
	}()
	defer close(jobs)
	in := make([]byte, 65536)
	for {
		n, from, err := c.ReadFrom(in)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		jobs <- job{Response(bytes.Clone(in[:n]), 200), from}
	}
}

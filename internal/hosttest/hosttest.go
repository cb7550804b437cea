// Package hosttest has helpers for tests that use the host. They skip a test if the host lacks
// something, wait for conditions, undo changes, and compare with golden files.
package hosttest

import (
	"net"
	"testing"
	"time"

	"vitrine"
)

// Need skips the test if the error is a *vitrine.Unsupported, because this host lacks what the test
// needs. Any other error fails the test.
func Need(t testing.TB, err error) {
	t.Helper()
	if vitrine.IsUnsupported(err) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// AtEnd calls undo when the test ends. An error of undo fails the test.
func AtEnd(t testing.TB, undo func() error) {
	t.Helper()
	t.Cleanup(func() {
		if err := undo(); err != nil {
			t.Error(err)
		}
	})
}

// FreeAddress returns a loopback address whose port nobody uses now. The network is "tcp" or "udp".
func FreeAddress(t testing.TB, network string) string {
	t.Helper()
	var config net.ListenConfig
	if network == "udp" {
		c, err := config.ListenPacket(t.Context(), network, "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.LocalAddr().String()
	}
	l, err := config.Listen(t.Context(), network, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Until calls ok again and again until it returns true. It fails the test after the limit.
func Until(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(limit)
	for !ok() {
		if t.Failed() {
			t.FailNow()
		}
		if time.Now().After(deadline) {
			t.Fatalf("timed out after %s: %s", limit, what)
		}
		<-tick.C
	}
}

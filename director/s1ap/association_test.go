package s1ap

import (
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// TestSlowPeerKeepsItsAssociation writes a queue to a peer that reads all the time, but needs longer for
// the whole queue than a write may take.
func TestSlowPeerKeepsItsAssociation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		const octets, each = 100, 10
		a := &association{server: &Server{}, conn: near, out: make([]byte, octets), draining: true}
		a.server.queued.Store(octets)
		ended := make(chan struct{})
		go func() {
			a.drain()
			close(ended)
		}()
		for range octets / each {
			time.Sleep(stall / 4)
			if n, err := far.Read(make([]byte, each)); n != each || err != nil {
				t.Fatalf("read %d octets, %v", n, err)
			}
		}
		<-ended
		if queued := a.server.queued.Load(); a.err != nil || queued != 0 {
			t.Errorf("a peer that reads: %v, %d octets are left", a.err, queued)
		}
	})
}

package director

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloudflare/tableflip"
)

// upgrader returns the only upgrader that a process may have.
var upgrader = sync.OnceValues(func() (*tableflip.Upgrader, error) { return tableflip.New(tableflip.Options{}) })

// TestFailedRestartIsShown asks for a hand-over that is not possible, by a signal. Nobody waits for the
// answer, so the status and the metrics must show that the old process continues.
func TestFailedRestartIsShown(t *testing.T) {
	restart := make(chan struct{}, 1)
	r := run(t, write(t, filepath.Join(t.TempDir(), "director.yaml"), good), func(o *Options) { o.Restart = restart })
	r.hasMetric(t, "vitrine_director_restarts_failed_total 0")
	if s := r.settle(t); s.Restart != nil {
		t.Errorf("before any restart, the status has %+v", s.Restart)
	}
	restart <- struct{}{}
	until(t, "the status shows that the restart failed", func() bool {
		s := r.settle(t)
		return s.Restart != nil && !s.Restart.At.IsZero() && strings.Contains(s.Restart.Error, "without support for hand-over")
	})
	r.hasMetric(t, "vitrine_director_restarts_failed_total 1")
}

// TestControlWaitsForTheCounts asks a new process for an instance before the old process has handed over
// its counts. An answer without them would show an instance with transactions in flight as drained, and
// counts that fall and rise again. A publication must wait too, because the old process also hands over the
// times of the epochs.
func TestControlWaitsForTheCounts(t *testing.T) {
	old, next := newDirector(t, long), newDirector(t, long)
	old.meter.Worker().Begin(old.now(), old.epochs.View().Table.ByName("reg-1"), 1)
	var stream bytes.Buffer
	if err := old.handOver(&stream); err != nil {
		t.Fatal(err)
	}
	from, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	next.options.Handover = &Handover{memory: from}
	if next.options.Handover.upgrader, err = upgrader(); err != nil {
		t.Fatal(err)
	}
	next.watch.notify()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- next.Run(ctx) }()
	defer func() {
		_ = to.Close() // Run may still wait for the counts
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	c, err := net.Dial("tcp", next.Control())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET /v1/instances/reg-1 HTTP/1.0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := c.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("before the counts came, the new process answered: %v", err)
	}
	if len(next.watch.changed) == 0 {
		t.Error("before the times of the epochs came, the new process published its findings")
	}
	if _, err := stream.WriteTo(to); err != nil {
		t.Fatal(err)
	}
	if err := c.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(c); err != nil || !strings.Contains(string(answer), `"in_flight":1`) {
		t.Errorf("with the counts, the new process answered %s, %v", answer, err)
	}
}

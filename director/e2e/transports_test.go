package e2e

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"net/textproto"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"vitrine"
	"vitrine/director/client"
)

// TestTransportsInMotion tests TCP from the phones, and IPv6. Meanwhile it adds and drains
// instances and changes weights. It restarts directors, except with TCP, because a restart ends
// connections. No call may fail.
func TestTransportsInMotion(t *testing.T) {
	t.Parallel()
	requirePrograms(t, "kamailio", "sipp", "tcpdump")
	for _, c := range []struct {
		name     string
		tcp, six bool
	}{{"TCP", true, false}, {"IPv6", false, true}, {"TCP over IPv6", true, true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			if c.six {
				s = newSite6(t)
			}
			s.tcp = c.tcp
			m := s.motion(2, options{Transition: "4s"})
			if c.tcp {
				m.lose = 0 // because there are no retransmissions
			}
			m.call(kinds, 10, 0)
			m.after(200)
			m.grow()
			m.after(200)
			if !c.tcp {
				m.restart()
			}
			m.shift(2)
			m.after(200)
			m.shrink()
			m.after(200)
			sum := m.finish()
			m.ledger.close()
			t.Logf("%d transactions, %d calls failed", sum.transactions, sum.failed)
			for _, d := range m.fleet {
				for _, reason := range []string{"unsent", "queue_full", "no_connection"} {
					if n := d.metric("vitrine_director_drops_total", `reason="`+reason+`"`); n > 0 {
						t.Errorf("%s could not send %g messages: %s", d.name, n, reason)
					}
				}
			}
			m.captured(sum)
			m.lost(sum, nil)
			m.report("a transaction changed instances", m.ledger.strayedBut(func(r *record) bool { return r.longer(m.transition) }), nil)
		})
	}
}

// TestRestartUnderTCP checks that a restart ends connections, and that phones can reconnect at
// once. Each phone loses at most the request in progress, and the director refuses no
// connection.
func TestRestartUnderTCP(t *testing.T) {
	t.Parallel()
	requirePrograms(t, "kamailio")
	s := newSite(t)
	in := s.kamailio(firstInstance, "registration-1", registration)
	d := s.director(firstDirector, options{Instances: []vitrine.Instance{entry(in, 1)}})
	const phones = 20
	var served, broken atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var all errgroup.Group
	for i := range phones {
		all.Go(func() error {
			for n := 0; ctx.Err() == nil; n++ {
				c, err := net.Dial("tcp", d.address)
				if err != nil {
					return fmt.Errorf("connection %d of phone %d: %w", n, i, err)
				}
				challenges(ctx, c, fmt.Sprintf("%d-%d", i, n), &served)
				if ctx.Err() == nil {
					broken.Add(1)
				}
				_ = c.Close()
			}
			return nil
		})
	}
	const restarts = 3
	for range restarts {
		more := served.Load() + 10*phones
		eventually(t, "phones are served", func() bool { return served.Load() >= more })
		d.restart()
	}
	more := served.Load() + 10*phones
	eventually(t, "phones are served after the last restart", func() bool { return served.Load() >= more })
	stop()
	if err := all.Wait(); err != nil {
		t.Error(err)
	}
	t.Logf("served %d requests; %d connections ended in %d restarts", served.Load(), broken.Load(), restarts)
	if n := broken.Load(); n == 0 || n > restarts*phones {
		t.Errorf("%d connections of %d phones ended in %d restarts", n, phones, restarts)
	}
}

// challenges sends one REGISTER after the other and counts the challenges, until the connection
// or ctx ends.
func challenges(ctx context.Context, c net.Conn, name string, served *atomic.Int64) {
	answer := bufio.NewReader(c)
	for n := 0; ctx.Err() == nil; n++ {
		text := bytes.Replace(request("REGISTER", fmt.Sprintf("tcp-%s-%d", name, n), ""), []byte("/UDP 127.0.0.1;rport"), []byte("/TCP "+c.LocalAddr().String()), 1)
		if _, err := c.Write(text); err != nil {
			return
		}
		head, err := textproto.NewReader(answer).ReadLine()
		if err != nil || !strings.HasPrefix(head, "SIP/2.0 401 ") {
			return
		}
		if _, err := textproto.NewReader(answer).ReadMIMEHeader(); err != nil {
			return
		}
		served.Add(1)
	}
}

// TestDialogsDrainInMotion checks that with `drain: dialog` a draining instance keeps its calls
// until their BYE, and gets no new calls. It is drained when its last call has ended.
func TestDialogsDrainInMotion(t *testing.T) {
	t.Parallel()
	requirePrograms(t, "kamailio", "sipp", "tcpdump")
	m := newSite(t).motion(2, options{Transition: "4s", Session: ", drain: dialog"})
	m.lose = 5                                  // makes a retransmitted BYE at the end of the last dialog likely
	calls := kind{"invite", 2, 6 * time.Second} // longer than a transition
	m.call([]kind{calls}, 20, 0)
	m.after(200)
	old := m.instances[1]
	if old.ty != session {
		t.Fatalf("%s has type %s, want session", old.name, old.ty)
	}
	state := vitrine.Draining
	m.fleet.alter(old.name, client.Change{State: &state})
	m.fleet.agree()
	begun := time.Now()
	before := m.ledger.began(old)
	open := int64(0)
	for _, d := range m.fleet {
		in := d.instance(old.name)
		open += in.Dialogs
		if in.Dialogs > 0 && in.Drained {
			t.Errorf("%s: %s is drained but has %d dialogs", d.name, old.name, in.Dialogs)
		}
	}
	if open == 0 {
		t.Fatal("the instance had no dialog, so the test proves nothing")
	}
	m.fleet.drain(old.name)
	took := time.Since(begun)
	for _, d := range m.fleet {
		if in := d.instance(old.name); !in.Quiet {
			t.Errorf("%s: %s is drained, but not quiet after %d messages", d.name, old.name, in.Messages)
		}
	}
	m.fleet.remove(old.name)
	after := m.ledger.began(old)
	old.stop()
	m.after(200)
	sum := m.finish()
	m.ledger.close()
	elsewhere, byes := m.ledger.elsewhere(begun, m.transition)
	t.Logf("%d transactions, %d calls failed; %d dialogs when %s began to drain, which took %s; %d BYEs since, %d of them at another instance than their INVITE",
		sum.transactions, sum.failed, open, old.name, took.Round(time.Millisecond), byes, len(elsewhere))
	m.lost(sum, nil)
	m.report("a BYE went elsewhere than its INVITE", elsewhere, nil)
	if byes == 0 {
		t.Error("no call ended during the drain, so the test proves nothing")
	}
	// While the instance drains, only BYEs of its calls may begin there. Some of these calls
	// may have begun before all directors had applied the drain.
	if n := after - before; n < int(open)/2 || n > int(open)+10 {
		t.Errorf("%d transactions began at the draining instance with %d dialogs", n, open)
	}
}

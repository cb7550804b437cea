package mme

import (
	"context"
	"net"
)

// A Driver handles the messages of one eNodeB in its caller's goroutine, and makes
// the calls to the HSS and the gateway there too. So a test or a benchmark has no
// other goroutine.
type Driver struct {
	mme *MME
	enb *enodeb
}

// NewDriver returns a driver of an MME that is not served. What the MME sends to the
// eNodeB is not written to the connection, but kept for Sent.
func NewDriver(m *MME, conn net.Conn) *Driver {
	return &Driver{m, newENodeB(conn, len(m.workers))}
}

// Handle handles a message, and everything that follows from it.
func (d *Driver) Handle(ctx context.Context, message []byte) {
	w := d.mme.workers[0]
	w.handle(d.enb, message)
	for {
		select {
		case j := <-d.mme.jobs:
			d.mme.make(ctx, j)
			w.answered(j)
			continue
		default:
		}
		break
	}
	w.flush()
}

// Sent returns the frames for the eNodeB, which Handle overwrites.
func (d *Driver) Sent() []byte { return d.enb.Take() }

// Expire lets the timer of each context expire that has one.
func (d *Driver) Expire() {
	w := d.mme.workers[0]
	for u := w.timers.due(1 << 62); u != nil; u = w.timers.due(1 << 62) {
		w.expired(u)
	}
}

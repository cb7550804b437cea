package sipudp

import (
	"container/heap"
	"context"
	"time"

	"github.com/emiago/sipgo/sip"
)

// Run drives the timers until ctx is done.
func (t *Transactions) Run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		next, some := t.expire(time.Now())
		if some {
			timer.Reset(max(time.Until(next), grain))
		} else {
			timer.Stop()
		}
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-t.wake:
		}
	}
}

// expire handles the timers that are due, and returns when the next one is due.
func (t *Transactions) expire(now time.Time) (next time.Time, some bool) {
	var late []*Transaction
	t.mu.Lock()
	for len(t.timers) > 0 && !t.timers[0].due.After(now) {
		tx := t.timers[0]
		switch {
		case !tx.finished.IsZero() && !tx.finished.Add(linger).After(now):
			t.drop(tx)
		case tx.unacked:
			t.resend(tx, tx.upstream, tx.reply, now, tx.finished.Add(linger))
		case !tx.finished.IsZero():
			t.schedule(tx, tx.finished.Add(linger))
		case tx.branch == "": // neither forwarded nor answered
			t.drop(tx)
		case tx.provisional && tx.invite():
			if end := tx.began.Add(timerC); end.After(now) {
				t.schedule(tx, now.Add(t2))
				continue
			}
			_ = t.cancel(tx, now) // RFC 3261 section 16.8; if it is lost, Run retransmits it
			late = t.giveUp(tx, now, late)
		case !tx.began.Add(t.timeout).After(now):
			late = t.giveUp(tx, now, late)
		default:
			t.resend(tx, tx.downstream, tx.forwarded, now, tx.began.Add(t.timeout))
		}
	}
	if some = len(t.timers) > 0; some {
		next = t.timers[0].due
	}
	t.next = next
	t.mu.Unlock()
	for _, tx := range late {
		t.onTimeout(tx)
	}
	return next, some
}

// resend sends a request or an answer again, and schedules the next time: after twice the
// interval, but not after end. The caller holds the lock.
func (t *Transactions) resend(tx *Transaction, to Peer, data []byte, now, end time.Time) {
	_ = to.Send(data, tx.Event) // if it is lost, the next one follows
	tx.interval = min(2*tx.interval, t2)
	at := now.Add(tx.interval)
	if end.Before(at) {
		at = end
	}
	t.schedule(tx, at)
}

// giveUp marks a transaction as timed out. It stays for linger to absorb late
// messages.
func (t *Transactions) giveUp(tx *Transaction, now time.Time, late []*Transaction) []*Transaction {
	tx.final, tx.finished = sip.StatusRequestTimeout, now
	t.schedule(tx, now.Add(linger))
	return append(late, tx)
}

func (t *Transactions) drop(tx *Transaction) {
	heap.Pop(&t.timers)
	tx.due = time.Time{} // Forward may schedule it again
	delete(t.client, tx.branch)
	if t.server[tx.key] == tx { // after a late Forward, a retransmission may have begun another one
		delete(t.server, tx.key)
	}
}

// schedule sets the transaction's one timer. The caller holds the lock.
func (t *Transactions) schedule(tx *Transaction, due time.Time) {
	if tx.due.IsZero() {
		tx.due = due
		heap.Push(&t.timers, tx)
	} else {
		tx.due = due
		heap.Fix(&t.timers, tx.index)
	}
	if t.next.IsZero() || due.Before(t.next) {
		t.next = due
		select {
		case t.wake <- struct{}{}:
		default:
		}
	}
}

// timers is a heap of transactions by due time.
type timers []*Transaction

func (h timers) Len() int           { return len(h) }
func (h timers) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h timers) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *timers) Push(x any) {
	tx := x.(*Transaction)
	tx.index = len(*h)
	*h = append(*h, tx)
}
func (h *timers) Pop() any {
	old := *h
	tx := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return tx
}

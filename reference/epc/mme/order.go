package mme

import (
	"context"

	"vitrine/internal/truth"
	"vitrine/wire/identity"
	"vitrine/wire/s1ap"
)

// An order asks a worker to do something with a context: to detach the UE unless a
// field says otherwise. Any goroutine may give one.
type order struct {
	holder                 // zero: the context is in the store, and imsi and stmsi name it
	imsi   identity.Digits // set if holder is zero
	stmsi  identity.STMSI
	page   bool    // page the context
	change *change // change its bearers
	enodeb *enodeb // make all UEs of this eNodeB idle, because it has repeated S1 Setup
	reset  *reset  // carry out a Reset

	event truth.Event // that caused the order, or 0
}

// order gives the worker an order.
func (w *worker) order(o order) {
	w.mu.Lock()
	w.orders = append(w.orders, o)
	w.mu.Unlock()
	select {
	case w.poke <- struct{}{}:
	default:
	}
}

// give gives an order to the worker that has a subscriber's context. If the context is in the
// store alone, that worker reads it. give returns false if the MME has no such subscriber. It
// waits only for the store.
func (m *MME) give(ctx context.Context, imsi identity.Digits, o order) bool {
	m.mu.Lock()
	h, ok := m.holders[imsi]
	m.mu.Unlock()
	if ok {
		o.holder = h
		h.ue.worker.order(o)
		return true
	}
	if m.config.Store == nil {
		return false
	}
	k, _, err := m.read(ctx, imsi.String())
	if err != nil || k == nil {
		return false
	}
	m.orderKept(k, o)
	return true
}

// obey carries out the orders.
func (w *worker) obey() {
	w.mu.Lock()
	orders := w.orders
	w.orders = nil
	w.mu.Unlock()
	for _, o := range orders {
		if w.event = o.event; w.event == 0 {
			w.event = w.mme.config.Messages.Begin()
		}
		switch {
		case o.enodeb != nil:
			w.clear(w, o.enodeb)
		case o.reset != nil:
			w.carryOut(o.reset)
		case o.ue == nil:
			w.summon(o)
		case o.ue.serial != o.serial || o.ue.gone: // the context is in use for another UE, or detached
			if o.change != nil {
				o.change.done <- changed{err: errNoContext}
			}
		case o.change != nil:
			w.want(o.ue, o.change)
		case o.page:
			w.page(o.ue)
		default:
			w.supersede(o.ue)
		}
	}
}

// clear makes the UEs of an eNodeB idle. by is the calling worker; any other worker
// gets an order.
func (w *worker) clear(by *worker, e *enodeb) {
	if w != by {
		w.order(order{enodeb: e})
		return
	}
	for u := e.perWork[w.number].head; u != nil; u = e.perWork[w.number].head {
		w.lostConnection(u)
	}
}

// lookUp returns the UE that an eNodeB names by one or both identifiers; nil if there
// is none. Without the MME UE S1AP ID, it searches all UEs of the eNodeB.
func (w *worker) lookUp(e *enodeb, c s1ap.Connection) *ue {
	if c.HasMME {
		if u := w.byID[c.MME]; u != nil && u.enb == e && (!c.HasENB || u.enbID == c.ENB) {
			return u
		}
		return nil
	}
	for u := e.perWork[w.number].head; u != nil && c.HasENB; u = u.next {
		if u.enbID == c.ENB {
			return u
		}
	}
	return nil
}

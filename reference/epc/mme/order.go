package mme

import (
	"vitrine/internal/truth"
	"vitrine/wire/identity"
	"vitrine/wire/s1ap"
)

// An order tells a worker, from any goroutine, to detach a context, or to do something
// else with it.
type order struct {
	holder                 // without a context it is in the store: then imsi and stmsi name it
	imsi   identity.Digits // see holder
	stmsi  identity.STMSI
	page   bool    // page the context
	change *change // change its bearers
	enodeb *enodeb // make all UEs of an eNodeB idle that has set itself up again
	reset  *reset  // carry out a Reset

	event truth.Event // what asks for it, or 0
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
		case o.ue.serial != o.serial || o.ue.gone: // it is another one by now
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

// clear makes the UEs of an eNodeB idle. by is the worker that asks for it.
func (w *worker) clear(by *worker, e *enodeb) {
	if w != by {
		w.order(order{enodeb: e})
		return
	}
	for u := e.perWork[w.number].head; u != nil; u = e.perWork[w.number].head {
		w.lostConnection(u)
	}
}

// lookUp returns the UE that an eNodeB names by one or both of its identifiers; nil if
// there is none. Without that of the MME, it looks at all UEs of the eNodeB.
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

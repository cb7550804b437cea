package mme

import (
	"context"

	"vitrine/internal/truth"
	"vitrine/wire/identity"
	"vitrine/wire/s1ap"
	"vitrine/wire/s1ap/frame"
)

// pagings is the number of times that Paging is repeated before the MME gives up (TS
// 24.301 clause 5.6.2.2.1.2).
const pagings = 1

// Page pages an idle subscriber: the S-GW has a downlink packet for it (TS 23.401
// clause 5.3.4.3). It returns false if the MME has no such subscriber. Any goroutine
// may call Page. It waits only for the store.
func (m *MME) Page(ctx context.Context, imsi identity.Digits) bool {
	return m.give(ctx, imsi, order{page: true, event: truth.From(ctx)})
}

// page pages a UE, unless the UE is connected or already being paged. If the UE is
// becoming idle, page delays the paging until the UE is idle: the S-GW may send its
// notification before the UE Context Release Complete, as soon as the access bearers
// are released.
func (w *worker) page(u *ue) {
	if u.kind == release && u.running {
		u.summons, u.summoner = true, w.event
		return
	}
	u.summons = false
	if u.enb != nil || !u.ready() || u.paged() {
		return
	}
	u.event = w.event
	w.begin(u, paging)
	u.tries = pagings
	w.sendPaging(u)
}

// paged reports whether the UE is idle and is being paged.
func (u *ue) paged() bool { return u.running && u.kind == paging }

// sendPaging sends Paging to the eNodeBs of the UE's tracking area (TS 36.413 clause
// 8.5).
func (w *worker) sendPaging(u *ue) {
	w.timers.set(u, w.now+w.mme.config.Timers.NAS)
	number := uint64(0)
	for _, digit := range u.imsi.Bytes() {
		number = number*10 + uint64(digit-'0')
	}
	const packets = 0
	b := s1ap.AppendHeader(w.out[:0], s1ap.Initiating, s1ap.Paging, s1ap.Ignore)
	b = s1ap.AppendIndex(b, s1ap.Ignore, uint16(number%1024))
	b = s1ap.AppendPaged(b, s1ap.Ignore, u.stmsi)
	b = s1ap.AppendEnum(b, s1ap.CNDomain, s1ap.Ignore, packets)
	start := len(b)
	b = s1ap.BeginList(b, s1ap.TAIList, s1ap.Ignore, 1)
	b = s1ap.AppendTAIItem(b, s1ap.Ignore, u.tai)
	b = s1ap.End(s1ap.EndElement(b, start), 0)
	w.out = b
	for _, e := range w.mme.serving(u.tai) {
		w.send(e, frame.Common, b)
	}
}

// pagedInVain pages a UE again, or gives up. Then the timer runs for the rest of the
// UE's reachable time.
func (w *worker) pagedInVain(u *ue) {
	if u.tries > 0 {
		u.tries--
		w.sendPaging(u)
		return
	}
	w.end(u, timedOut)
	if u.change != nil {
		w.endChange(u, errPaged)
	}
	if w.mme.config.Store != nil {
		w.evict(u)
		return
	}
	w.timers.set(u, u.silent)
}

// serving returns the eNodeBs of a tracking area.
func (m *MME) serving(area identity.TAI) (of []*enodeb) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.enodebs {
		for _, a := range e.areas {
			if a == area {
				of = append(of, e)
				break
			}
		}
	}
	return of
}

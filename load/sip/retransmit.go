package sip

import "time"

// t1 is RFC 3261's estimate of the round-trip time (section 17.1.1.1).
const t1 = 500 * time.Millisecond

// t2Index is the index in engine.retransmissions of T2, 4 s: the longest retransmission
// interval except for INVITE requests.
const t2Index = 3

// lastsFor is the time for which a message is retransmitted: timers B and F (sections 17.1.1.2 and
// 17.1.2.2), and the limit of section 13.3.1.4.
const lastsFor = 64 * t1

// sendAgain sets the alarm to one interval from now, unless that is lastsFor or more after the
// first transmission. So no interval is longer than 32 T1.
func (e *engine) sendAgain(a alarm) {
	a.at = e.now + t1<<a.interval
	if a.at-a.first >= lastsFor {
		return
	}
	e.retransmissions[a.interval].Push(a)
}

// retransmit sends the retransmissions that are due: timer A for INVITE, E for
// other requests (sections 17.1.1.2 and 17.1.2.2), and the callee's 200 until its
// ACK arrives (section 13.3.1.4).
func (e *engine) retransmit() {
	for i := range e.retransmissions {
		for e.retransmissions[i].Len() > 0 && e.retransmissions[i].Front().at <= e.now {
			if a := e.retransmissions[i].Pop(); a.active() {
				e.retransmitOne(a)
			}
		}
	}
}

func (e *engine) retransmitOne(a alarm) {
	c := a.call
	socket, message, to := c.socket, c.last, c.reply
	next := a.interval + 1
	switch {
	case a.ofAnswer:
		if len(c.answer) == 0 {
			return
		}
		socket, message, next = c.from, c.answer, min(next, t2Index)
	case c.answered, c.step == invite && c.proceeding:
		return
	case c.step != invite:
		next = min(next, t2Index)
		if c.proceeding {
			next = t2Index
		}
	}
	if socket.full() {
		socket.flush(e.sentFunc)
		if !c.alive {
			return
		}
	}
	e.logSent(socket, message, to, 0, "") // the octets of the first transmission
	socket.push(append(socket.next(), message...), to, owner{})
	a.interval = next
	e.sendAgain(a)
}

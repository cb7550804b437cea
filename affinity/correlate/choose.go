package correlate

import (
	"vitrine/affinity/message"
)

const (
	trusted  = 0.5  // minimum confidence to learn identifiers from a message
	accepted = 0.3  // minimum confidence to assign a message by its identifiers
	timeOnly = 0.5  // minimum confidence to assign a message by time alone
	late     = 10   // multiple of soon after which the confidence by time alone halves, and the likelihood of a record
	maxBusy  = 16   // maximum number of transactions among which time alone may decide
	soon     = 10e6 // ns: typical reaction time of a function
	novel    = 0.2  // added to the likelihood of an order of messages, for orders not seen yet
	unusual  = 0.02 // the same for records
	past     = 0.1  // factor for a transaction that seems to be over, because its user has begun a newer one
)

// A candidate is a transaction that may have caused a message.
type candidate struct {
	event   *Event
	session bool    // the message names one of its dialogs
	tunnel  bool    // the message names one of its tunnels or associations
	user    bool    // the message names one of its users
	learned float64 // confidence that the message's identifiers belong to its user
	usual   float64 // likelihood that the sender of a record sends such a record next
	reason  Reason
	quality float64 // confidence if there is no other candidate
	score   float64 // for comparison with others
}

// choose finds the transaction that caused a message. It returns nil if none did, or if it
// cannot decide.
func (c *Correlator) choose(m *message.Message, name, from int32) (*Event, Link) {
	c.found, c.over = c.found[:0], false
	if c.names.list[name].alive {
		return nil, Link{Confidence: 1, Reason: KeepAlive}
	}
	for k := range m.Identifiers {
		c.meets(&m.Identifiers[k])
	}
	newest, dialog := uint64(0), false
	for k := range c.found {
		x := &c.found[k]
		c.judge(x, m, name, from)
		if x.score > 0 {
			newest = max(newest, x.event.ID)
			dialog = dialog || x.session && (m.Protocol != message.SIP || x.event.state != quiet)
		}
	}
	// A record that names a dialog that is over has nothing to do with the open transactions
	// of its user. A SIP message may have: a NOTIFY may come long after its subscription.
	ended := c.over && !dialog && m.Protocol != message.SIP
	sum, best := 0.0, -1
	for k := range c.found {
		x := &c.found[k]
		// A user may have several transactions at once. A shared dialog (RFC 3261 section
		// 12), or a record that names one, excludes the transactions that share only the
		// user. A quiet SIP dialog does not: a NOTIFY in it has its cause in another
		// transaction.
		if ended || dialog && !x.session {
			x.score = 0
		}
		if x.event.state == quiet && x.event.ID < newest {
			x.score *= max(past, x.usual)
		}
		sum += x.score
		if best < 0 || x.score > c.found[best].score {
			best = k
		}
	}
	switch {
	case ended:
		return nil, Link{Confidence: 1, Reason: Late}
	case best < 0 || c.found[best].score == 0:
		return c.byTime(m, name, from)
	}
	x := &c.found[best]
	confidence := x.quality * x.score / sum
	if confidence < accepted {
		return nil, Link{Reason: Ambiguous}
	}
	return x.event, Link{Confidence: confidence, Reason: x.reason}
}

// meets adds as candidates the open transactions that name the identifier or one linked
// with it.
func (c *Correlator) meets(id *message.Identifier) {
	what := useOf(id.Kind)
	if what == nothing {
		return
	}
	i := c.ids.table[hashOf(id)]
	if i == nil {
		return
	}
	c.over = c.over || i.dialog && i.held == 0
	for _, e := range i.events[:i.open] {
		x := c.candidate(e)
		x.session = x.session || what == session
		x.tunnel = x.tunnel || what == tunnel
		x.user = x.user || what == user
	}
	for k := range i.links {
		l := &i.links[k]
		if l.weight == 0 {
			continue
		}
		sure := i.confidence(l)
		other := c.ids.table[l.to]
		if sure < accepted || other == nil {
			continue
		}
		for _, e := range other.events[:other.open] {
			x := c.candidate(e)
			x.learned = max(x.learned, sure)
		}
	}
}

func (c *Correlator) candidate(e *Event) *candidate {
	for k := range c.found {
		if c.found[k].event == e {
			return &c.found[k]
		}
	}
	c.found = append(c.found, candidate{event: e})
	return &c.found[len(c.found)-1]
}

// judge sets the reason, quality and score of a candidate for a message that from sends.
func (c *Correlator) judge(x *candidate, m *message.Message, name, from int32) {
	e, n := x.event, c.names.list[name]
	x.score, x.quality, x.usual = 0, 0, 0
	p := e.find(from)
	named := x.session || x.tunnel || x.user
	received := p != nil && p.lastIn >= 0
	switch {
	case n.radio && !c.continues(x, m, p, name): // an unanswered request may have been answered by a lost message
		return
	case p != nil && p.unanswered > 0 && (named || x.learned > 0):
		x.reason, x.quality = Contained, 0.99
	case (n.begins || n.renews) && !c.continues(x, m, p, name):
		return
	case received && (x.session || x.tunnel):
		x.reason, x.quality = Session, 0.98
	case received && from == e.Initiator() && e.Unanswered == 0:
		return // its user does something new
	case received:
		x.reason, x.quality = Follows, 0.9
	case from == e.Initiator() && (x.session || x.tunnel):
		x.reason, x.quality = Session, 0.95
	case x.session, named && e.Unanswered > 0 && from != e.Initiator():
		x.reason, x.quality = Gap, 0.75
	default:
		return
	}
	x.score = x.quality
	if x.reason == Contained {
		x.score *= 4 // the sender is working on this transaction, not on one that is over
	}
	if !named {
		x.reason = Learned
		x.quality *= x.learned
		x.score *= x.learned
	}
	if !received {
		x.score *= 0.01
		return
	}
	at, ago := e.moment(p.lastIn), float64(max(0, m.Time-e.Steps[p.lastIn].At()))
	if x.session && m.Protocol != message.SIP {
		// A function may send a record late, while it works on another transaction of the
		// dialog. So the record belongs where the function usually sends one next.
		x.usual = c.order.likely(at, name)
		x.score = (unusual + x.usual) / (1 + ago/(late*soon))
		return
	}
	x.score *= (novel + c.order.likely(at.anywhere(), name)) / (1 + ago/soon)
	if p.waiting > 0 && m.Kind == message.Request {
		x.score *= 0.3 // the sender already waits for an answer
	}
}

// continues reports whether a message that usually begins a transaction continues this one.
func (c *Correlator) continues(x *candidate, m *message.Message, sender *part, name int32) bool {
	e, n := x.event, c.names.list[name]
	switch {
	case sender != nil && sender.challenged: // RFC 3261 section 22: the same registration, session ...
		return n.renews && (x.session || x.user)
	case n.renews && x.session && sender != nil && sender.function == e.Initiator(): // RFC 3261 section 10.2: REGISTER is in no dialog
		return e.call && n.text != "REGISTER"
	case n.renews && x.session: // within a dialog, or a hop that is not in the capture
		return e.call || e.Unanswered > 0
	case n.renews:
		return x.user && sender != nil && c.isThirdParty(e, m, sender)
	case n.begins && sender != nil && sender.lastIn >= 0: // TS 23.401 clauses 5.3.4.3 and 5.4.1
		root, last := &e.Steps[0], &e.Steps[sender.lastIn]
		return c.names.list[last.Name].pages || last.Name == name || c.isPiggybacked(e, m, sender) ||
			root.To == sender.function && root.Name != name && c.names.list[root.Name].begins && root.Kind == message.Request
	}
	return false
}

// isThirdParty reports whether a function that has registered a user tells a function that does not
// know of it yet: an S-CSCF sends each application server a REGISTER of its own (TS 24.229
// clause 5.4.1.7).
func (c *Correlator) isThirdParty(e *Event, m *message.Message, sender *part) bool {
	const register = "REGISTER"
	return m.Name == register && c.names.list[e.Steps[0].Name].text == register && sender.function != e.Initiator() && sender.answered &&
		e.find(c.function(m.To)) == nil
}

// isPiggybacked reports whether a message came in one datagram with an answer of the
// transaction, and so at the same time: a P-GW creates dedicated bearers at once with the
// default one (TS 23.401 annex F).
func (c *Correlator) isPiggybacked(e *Event, m *message.Message, sender *part) bool {
	if m.Protocol != message.GTPv2 {
		return false
	}
	to := c.function(m.To)
	for i := len(e.Steps) - 1; i >= 0 && e.Steps[i].Time == m.Time; i-- {
		if s := &e.Steps[i]; s.Kind == message.Answer && s.From == sender.function && s.To == to {
			return true
		}
	}
	return false
}

// byTime finds the cause of a message that shares no known identifier with a transaction: a
// transaction in which its sender has a request to answer. The confidence is high if the
// sender sends such messages only while it has a request to answer, if no other transaction
// competes, and if little time has passed.
func (c *Correlator) byTime(m *message.Message, name, from int32) (*Event, Link) {
	busy := c.places[from].busy
	n := &c.names.list[name]
	if m.Kind == message.Answer || n.begins || n.renews {
		return nil, Link{Confidence: 1, Reason: Begins}
	}
	sure := c.order.provoked(from, name, len(busy) > 0)
	if len(busy) == 0 || len(busy) > maxBusy {
		return nil, Link{Confidence: 1, Reason: Begins}
	}
	sum, best, most := 0.0, (*Event)(nil), 0.0
	for _, e := range busy {
		p := e.find(from)
		last := &e.Steps[p.lastIn]
		score := c.order.likely(e.moment(p.lastIn).anywhere(), name) / (1 + float64(max(0, m.Time-last.At()))/soon)
		if p.waiting > 0 {
			score *= 0.3
		}
		sum += score
		if score > most {
			best, most = e, score
		}
	}
	c.guess(m, busy, from)
	last := &best.Steps[best.find(from).lastIn]
	sure *= most / sum / (1 + float64(max(0, m.Time-last.At()))/(late*soon))
	if sure < timeOnly {
		return nil, Link{Confidence: 1 - sure, Reason: Begins}
	}
	if len(busy) > 1 { // too uncertain to learn from
		sure = min(sure, trusted-0.01)
	}
	return best, Link{Confidence: sure, Reason: TimeOnly}
}

// guess links the identifiers of a message with those of all transactions that may have
// caused it. Each link gets a weight of one over their number. True links recur and grow;
// the others stay weak.
func (c *Correlator) guess(m *message.Message, busy []*Event, from int32) {
	for k := range m.Identifiers {
		id := &m.Identifiers[k]
		if !lasts(id) {
			continue
		}
		i := c.ids.get(id)
		for _, e := range busy {
			p := e.find(from)
			for _, with := range p.in[:p.ins] {
				if with != i && different(with.kind, i.kind) {
					i.meet(with, 1/float32(len(busy)))
				}
			}
		}
		if i.held == 0 && !i.linked {
			i.rest(&c.ids.idle)
		}
	}
}

package correlate

import (
	"unsafe"

	"github.com/cespare/xxhash/v2"

	"vitrine/affinity/message"
)

const (
	maxOpen    = 8   // open transactions that an identifier finds; one in more says little
	maxLinks   = 8   // identifiers that are known to go with one
	maxAnchors = 4   // users of a transaction that are linked with all that it names
	inherited  = 0.5 // confidence from which a transaction takes over the user of what it names
)

// An identity is an identifier that was seen, the open transactions that name it, and
// the identifiers that go with it.
type identity struct {
	hash       uint64
	kind       message.IdentifierKind
	lasting    bool
	events     [maxOpen]*Event
	open       uint8
	held       int32 // open transactions that name it, with those that events has no room for
	links      [maxLinks]link
	prev, next *identity // in order of use, if it is in no open transaction
	linked     bool      // in that list
}

// A link is from an identifier to one that was seen with it: in a message, or in the
// messages that a function received and then sent.
type link struct {
	to     uint64
	kind   message.IdentifierKind
	weight float32 // how often
}

// confidence says how sure it is that the two mean the same user: how often they were
// seen together, and whether others of the same kind were, too. A user has several
// tunnels, one at each function and with each connection a new one: one that was seen
// twice is as good as one that was seen more often.
func (i *identity) confidence(l *link) float64 {
	sum, most := float32(0), float32(0)
	for k := range i.links {
		if other := &i.links[k]; other.weight > 0 && other.kind == l.kind {
			sum += other.weight
			most = max(most, other.weight)
		}
	}
	if useOf(l.kind) == tunnel {
		sum = max(l.weight, min(most, 2))
	}
	const doubt = 0.25 // that once is chance
	return float64(l.weight/sum) * float64(l.weight/(l.weight+doubt))
}

// meet notes that the identifier was seen with another one. If there is no room, the
// tunnel that was met first gives way, because connections come and go, or else the
// user that was seen least.
func (i *identity) meet(with *identity, weight float32) {
	place, isTunnel := 0, false
	for k := range i.links {
		l := &i.links[k]
		if l.weight > 0 && l.to == with.hash {
			l.weight += weight
			return
		}
		switch {
		case l.weight == 0:
			place, isTunnel = k, true
		case useOf(l.kind) == tunnel: // the last is the oldest
			place, isTunnel = k, true
		case !isTunnel && l.weight < i.links[place].weight:
			place = k
		}
	}
	if l := &i.links[place]; !isTunnel && l.weight > 1 { // the others were seen more often
		l.weight--
		return
	}
	copy(i.links[1:place+1], i.links[:place])
	i.links[0] = link{with.hash, with.kind, weight}
}

func (i *identity) in(e *Event) bool {
	for _, open := range i.events[:i.open] {
		if open == e {
			return true
		}
	}
	return false
}

// identities is the table of identifiers.
type identities struct {
	table map[uint64]*identity
	idle  identity // list of those in no open transaction, from the one used longest ago
	free  *identity
	count int
}

func (t *identities) init() {
	t.table = map[uint64]*identity{}
	t.idle.prev, t.idle.next = &t.idle, &t.idle
}

// memory counts the entry of the map, too.
func (t *identities) memory() int { return t.count * (int(unsafe.Sizeof(identity{})) + 32) }

// hashOf returns what finds an identifier. A private and a public identity of one text
// mean one user (TS 23.003 clause 13.4B derives them from each other).
func hashOf(id *message.Identifier) uint64 {
	if id.Kind == message.IMPI || id.Kind == message.IMPU {
		return xxhash.Sum64(id.Text)
	}
	return id.Hash
}

// get returns the identity of an identifier, and makes it if it is new.
func (t *identities) get(id *message.Identifier) *identity {
	hash := hashOf(id)
	i := t.table[hash]
	if i != nil {
		i.lasting = i.lasting || lasts(id)
		return i
	}
	if i = t.free; i != nil {
		t.free = i.next
		*i = identity{}
	} else {
		i = &identity{}
	}
	i.hash, i.kind, i.lasting = hash, id.Kind, lasts(id)
	t.table[hash] = i
	t.count++
	return i
}

// enter notes that an open transaction names the identifier. It reports whether it did
// not before. If there is no room, the first transaction that waits for nothing gives way.
func (t *identities) enter(i *identity, e *Event) bool {
	if i.in(e) {
		return false
	}
	place := int(i.open)
	if place == maxOpen {
		for k, other := range i.events {
			if other.state == quiet && (place == maxOpen || other.ID < i.events[place].ID) {
				place = k
			}
		}
		if place == maxOpen {
			return false
		}
	} else {
		i.open++
	}
	if i.linked {
		i.prev.next, i.next.prev = i.next, i.prev
		i.linked = false
	}
	i.events[place] = e
	i.held++
	return true
}

// leave undoes enter. An identifier that does not last is then forgotten.
func (t *identities) leave(i *identity, e *Event) {
	for k, open := range i.events[:i.open] {
		if open == e {
			i.open--
			i.events[k], i.events[i.open] = i.events[i.open], nil
			break
		}
	}
	i.held--
	if i.held > 0 {
		return
	}
	if !i.lasting {
		t.drop(i)
		return
	}
	t.rest(i)
}

// rest enters an identifier that is in no open transaction among the idle ones.
func (t *identities) rest(i *identity) {
	i.prev, i.next = t.idle.prev, &t.idle
	i.prev.next, t.idle.prev = i, i
	i.linked = true
}

func (t *identities) drop(i *identity) {
	delete(t.table, i.hash)
	t.count--
	i.next, t.free = t.free, i
}

// evict forgets the identifier that was in no transaction for longest.
func (t *identities) evict() bool {
	i := t.idle.next
	if i == &t.idle {
		return false
	}
	i.prev.next, i.next.prev = i.next, i.prev
	i.linked = false
	t.drop(i)
	return true
}

// A use says what an identifier is good for.
type use uint8

const (
	nothing use = iota // it only ties an answer to its request, or what it names is not unique
	session            // it names a dialog or an exchange
	tunnel             // it names what functions set up for a user: it outlives a transaction
	user               // it names a user
)

func useOf(k message.IdentifierKind) use {
	switch k {
	case message.CallID, message.EndToEnd:
		return session
	case message.SessionID, message.MMEUEID, message.ENBUEID, message.AMFUEID, message.RANUEID, message.TEID, message.SEID:
		return tunnel
	case message.IMPU, message.IMPI, message.IMSI, message.MSISDN, message.GUTI, message.UserKey, message.AddressUE, message.Key:
		return user
	}
	return nothing
}

// lasts reports whether an identifier is remembered after the transactions that name it: it names
// a user, or what functions set up for one. Most sessions of Diameter are one exchange. They
// never come back, and each exchange would add one.
func lasts(id *message.Identifier) bool {
	if id.Kind == message.SessionID {
		return id.Lasting
	}
	return useOf(id.Kind) > session
}

// identify enters the identifiers of a message for its transaction, and links those
// that last with each other, with those of the message that caused it, and with the
// transaction's user.
func (c *Correlator) identify(e *Event, m *message.Message, sender, receiver *part) {
	var lasting [4]*identity
	n := 0
	for k := range m.Identifiers {
		id := &m.Identifiers[k]
		if useOf(id.Kind) == nothing {
			continue
		}
		i := c.ids.get(id)
		c.enter(e, i)
		e.Users = e.Users || id.Kind != message.EndToEnd // which each command of Diameter has
		if i.lasting && n < len(lasting) && i.in(e) {
			lasting[n] = i
			n++
		}
	}
	if e.anchored == 0 {
		c.inherit(e, lasting[:n])
	}
	for a := range n {
		for b := range n {
			c.together(lasting[a], lasting[b])
		}
		for _, before := range sender.in[:sender.ins] {
			c.together(lasting[a], before)
			c.together(before, lasting[a])
		}
		if !e.several {
			for _, anchor := range e.anchors[:e.anchored] {
				c.together(lasting[a], anchor)
			}
		}
	}
	if n > 0 {
		receiver.in, receiver.ins = lasting, int8(n)
	}
}

// enter notes that a transaction names an identifier.
func (c *Correlator) enter(e *Event, i *identity) {
	if !c.ids.enter(i, e) {
		return
	}
	e.ids = append(e.ids, i)
	if !isAnchor(i.kind) {
		return
	}
	for _, other := range e.anchors[:e.anchored] {
		e.several = e.several || other.kind == i.kind
	}
	if int(e.anchored) < len(e.anchors) {
		e.anchors[e.anchored] = i
		e.anchored++
	}
}

// inherit enters the user of what a transaction names, if the transaction has named none.
func (c *Correlator) inherit(e *Event, lasting []*identity) {
	for _, i := range lasting {
		for k := range i.links {
			l := &i.links[k]
			if l.weight == 0 || !isAnchor(l.kind) || i.confidence(l) < inherited {
				continue
			}
			if user := c.ids.table[l.to]; user != nil {
				c.enter(e, user)
			}
		}
	}
}

// isAnchor reports whether identifiers of a kind name a user for longer than a session.
func isAnchor(k message.IdentifierKind) bool {
	switch k {
	case message.IMPU, message.IMPI, message.IMSI, message.MSISDN, message.GUTI:
		return true
	}
	return false
}

func (c *Correlator) together(a, b *identity) {
	if a != b && different(a.kind, b.kind) {
		a.meet(b, 1)
	}
}

// different reports whether identifiers of two kinds may mean the same user. Two of one
// kind are two users; but each function has tunnels of its own for a user.
func different(a, b message.IdentifierKind) bool { return a != b || useOf(a) == tunnel }

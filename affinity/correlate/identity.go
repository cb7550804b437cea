package correlate

import (
	"unsafe"

	"github.com/cespare/xxhash/v2"

	"vitrine/affinity/message"
)

const (
	maxOpen    = 8       // open transactions kept for an identifier; an identifier of more says little
	maxLinks   = 8       // links of an identifier
	maxAnchors = 4       // users of a transaction that are linked with its other identifiers
	maxUnused  = 1 << 14 // identifiers that are kept for reuse; they do not count towards Options.MaxMemory
	inherited  = 0.5     // minimum confidence of a link for a transaction to take over the linked user
)

// An identity is an identifier that was seen, the open transactions that name it, and the
// identifiers linked with it.
type identity struct {
	hash       uint64
	kind       message.IdentifierKind
	lasting    bool
	dialog     bool // a SIP message names it as its Call-ID
	events     [maxOpen]*Event
	open       uint8
	held       int32 // open transactions that name it, including those that events has no room for
	links      [maxLinks]link
	prev, next *identity // in identities.idle or identities.over, in order of use
	linked     bool      // it is in one of these lists
	left       int64     // when the last transaction that names it ended, if it is in identities.over
}

// A link is from an identifier to one that was seen with it: in a message, or in a message
// that a function sent after it received the other.
type link struct {
	to     uint64
	kind   message.IdentifierKind
	weight float32 // number of times, divided among candidates by guess
}

// confidence returns the confidence that both identifiers belong to the same user. It grows
// with the number of times they were seen together, and falls if other identifiers of the
// same kind were seen, too. A tunnel that was seen twice counts as much as one that was
// seen more often: a user has a tunnel at each function, and a new one with each
// connection.
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
	const doubt = 0.25 // weight of a coincidence
	return float64(l.weight/sum) * float64(l.weight/(l.weight+doubt))
}

// meet records that the identifier was seen with another one. If there is no room, it
// replaces the oldest tunnel, because connections come and go, or else the user seen least
// often.
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
	if l := &i.links[place]; !isTunnel && l.weight > 1 { // age the rarest user before it is replaced
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
	idle  identity    // list of the lasting identifiers in no open transaction, the least recently used first
	over  identity    // list of the dialogs whose transactions have ended, the first first
	free  []*identity // to be used again
	count int
}

func (t *identities) init() {
	t.table = map[uint64]*identity{}
	t.idle.prev, t.idle.next = &t.idle, &t.idle
	t.over.prev, t.over.next = &t.over, &t.over
}

// memory returns the bytes of the table, with about 32 for each map entry.
func (t *identities) memory() int { return t.count * (int(unsafe.Sizeof(identity{})) + 32) }

// hashOf returns the key of an identifier in the table. A private and a public identity
// with the same text have the same key, because they belong to one user (TS 23.003 clause
// 13.4B derives them from each other).
func hashOf(id *message.Identifier) uint64 {
	if id.Kind == message.IMPI || id.Kind == message.IMPU {
		return xxhash.Sum64(id.Text)
	}
	return id.Hash
}

// get returns the identity of an identifier, and creates it if it is new.
func (t *identities) get(id *message.Identifier) *identity {
	hash := hashOf(id)
	i := t.table[hash]
	if i != nil {
		i.lasting = i.lasting || lasts(id)
		return i
	}
	if n := len(t.free); n > 0 {
		i, t.free = t.free[n-1], t.free[:n-1]
	} else {
		i = &identity{}
	}
	i.hash, i.kind, i.lasting = hash, id.Kind, lasts(id)
	t.table[hash] = i
	t.count++
	return i
}

// enter records that an open transaction names the identifier, and reports whether this is
// new. If there is no room, it replaces the oldest quiet transaction, or does nothing if
// none is quiet.
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
		i.unlink()
	}
	i.events[place] = e
	i.held++
	return true
}

// leave undoes enter. When no transaction names the identifier any more, it makes the
// identifier idle if it lasts, and otherwise forgets it. It remembers a dialog for some
// time, because functions may send records of it late.
func (t *identities) leave(i *identity, e *Event, now int64) {
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
	switch {
	case i.lasting:
		i.rest(&t.idle)
	case i.dialog:
		i.left = now
		i.rest(&t.over)
	default:
		t.drop(i)
	}
}

// rest appends an identifier that is in no open transaction to a list.
func (i *identity) rest(list *identity) {
	i.prev, i.next = list.prev, list
	i.prev.next, list.prev = i, i
	i.linked = true
}

// unlink removes an identifier from its list.
func (i *identity) unlink() {
	i.prev.next, i.next.prev = i.next, i.prev
	i.linked = false
}

func (t *identities) drop(i *identity) {
	delete(t.table, i.hash)
	t.count--
	if len(t.free) < maxUnused {
		*i = identity{} // its neighbours in a list must not stay reachable
		t.free = append(t.free, i)
	}
}

// evict forgets an identifier that is in no open transaction: a dialog that is over, or
// else the idle one that was least recently used. It reports whether there was one.
func (t *identities) evict() bool {
	for _, list := range [...]*identity{&t.over, &t.idle} {
		if i := list.next; i != list {
			i.unlink()
			t.drop(i)
			return true
		}
	}
	return false
}

// expire forgets the dialogs whose transactions ended before a time.
func (t *identities) expire(before int64) {
	for i := t.over.next; i != &t.over && i.left < before; i = t.over.next {
		i.unlink()
		t.drop(i)
	}
}

// A use is how an identifier helps to find a transaction.
type use uint8

const (
	nothing use = iota // it only matches an answer to its request, or is not unique
	session            // it names a dialog or an exchange
	tunnel             // it names a tunnel or association that functions set up for a user; it outlives a transaction
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

// lasts reports whether an identifier is kept after the transactions that name it: it names
// a user, or a tunnel of a user. Most Diameter sessions have one exchange and never return;
// they would fill the table, so only long-lived ones are kept.
func lasts(id *message.Identifier) bool {
	if id.Kind == message.SessionID {
		return id.Lasting
	}
	return useOf(id.Kind) > session
}

// identify adds the identifiers of a message to its transaction. It links the lasting ones
// with each other, with those that the sender received last, and with the users of the
// transaction.
func (c *Correlator) identify(e *Event, m *message.Message, sender, receiver *part) {
	var lasting [4]*identity
	n := 0
	for k := range m.Identifiers {
		id := &m.Identifiers[k]
		if useOf(id.Kind) == nothing {
			continue
		}
		i := c.ids.get(id)
		i.dialog = i.dialog || id.Kind == message.CallID && m.Protocol == message.SIP
		c.enter(e, i)
		e.Users = e.Users || id.Kind != message.EndToEnd // every Diameter command has an end-to-end identifier, so it says nothing about a user
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

// enter records that a transaction names an identifier.
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

// inherit adds the users linked with the lasting identifiers to a transaction that has
// named no user yet.
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

// different reports whether identifiers of two kinds may belong to the same user. Two of
// one kind mean two users, except for tunnels: each function has its own tunnels for a
// user.
func different(a, b message.IdentifierKind) bool { return a != b || useOf(a) == tunnel }

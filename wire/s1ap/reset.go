package s1ap

// A Connection identifies a UE's connection by one or both of its identifiers
// (clause 9.1.8.1, UE-associated logical S1-connection item).
type Connection struct {
	MME, ENB       uint32
	HasMME, HasENB bool
}

// ParseReset parses a reset type (clause 9.1.8.1). It returns all for a reset
// of the whole interface, else the connections to reset.
func ParseReset(v []byte) (all bool, some Connections, ok bool) {
	r := reader{b: v}
	if r.bit() { // an alternative of the extension, which no version defines
		return false, some, false
	}
	if !r.bit() {
		resetAll := r.enumerated(0, 1)
		return true, some, !r.bad && resetAll == 0
	}
	count := int(r.octet()) + 1
	if r.bad {
		return false, some, false
	}
	return false, Connections{items: Elements{rest: v[r.at/8:], left: count}}, true
}

// ParseConnections returns an iterator over the value of the element ResetConnections.
func ParseConnections(v []byte) Connections { return Connections{items: List(v)} }

// Connections iterates over a list of 1 to 256 connections. Connection belongs to the
// item that Next reached.
type Connections struct {
	Connection
	Malformed bool // Next stopped before the end

	items Elements
}

// Next moves to the next connection and reports whether there is one.
func (c *Connections) Next() bool {
	if c.Malformed || !c.items.Next() {
		c.Malformed = c.Malformed || c.items.Err != nil
		return false
	}
	var ok bool
	c.Connection, ok = parseConnection(c.items.Value)
	c.Malformed = !ok || c.items.ID != ConnectionItem
	return !c.Malformed
}

func parseConnection(v []byte) (c Connection, ok bool) {
	r := reader{b: v}
	p := r.sequence(3)
	if c.HasMME = p.optional&4 != 0; c.HasMME {
		c.MME = uint32(r.long(4))
	}
	if c.HasENB = p.optional&2 != 0; c.HasENB {
		c.ENB = uint32(r.long(3))
	}
	r.end(p)
	return c, !r.bad
}

// appendConnection appends an item of a list of connections.
func appendConnection(b []byte, criticality Criticality, c Connection) []byte {
	start := len(b)
	w := writer{b: BeginElement(b, ConnectionItem, criticality)}
	w.flags(false, c.HasMME, c.HasENB, false)
	if c.HasMME {
		w.long(uint64(c.MME), 4)
	}
	if c.HasENB {
		w.long(uint64(c.ENB&0xffffff), 3)
	}
	return EndElement(w.b, start)
}

// AppendReset appends the element ResetType: for the whole interface if there
// are no connections, else for at most 256 connections.
func AppendReset(b []byte, some ...Connection) []byte {
	start := len(b)
	b = BeginElement(b, ResetType, Reject)
	if len(some) == 0 {
		return EndElement(append(b, 0), start)
	}
	if len(some) > 256 {
		panic("s1ap: a list has 1 to 256 items")
	}
	b = append(b, 0x40, byte(len(some)-1))
	for _, c := range some {
		b = appendConnection(b, Reject, c)
	}
	return EndElement(b, start)
}

// AppendConnections appends the element ResetConnections with at most 256 connections. It
// appends nothing if there are none.
func AppendConnections(b []byte, some ...Connection) []byte {
	if len(some) == 0 {
		return b
	}
	start := len(b)
	b = BeginList(b, ResetConnections, Ignore, len(some))
	for _, c := range some {
		b = appendConnection(b, Ignore, c)
	}
	return EndElement(b, start)
}

package flow

// A Hop is a message of a transaction, with functions as indexes from 0.
type Hop struct {
	From, To int
	Async    bool
}

// Hops returns the messages with functions as indexes into Functions.
func (t *Transaction) Hops() []Hop {
	index := map[string]int{}
	for i, name := range t.Functions() {
		index[name] = i
	}
	hops := make([]Hop, len(t.Messages))
	for i, m := range t.Messages {
		hops[i] = Hop{index[m.From], index[m.To], m.Async}
	}
	return hops
}

// Critical marks the messages on the critical path: the longest chain of messages in which
// each waits for the one before, up to the end of the transaction. Of chains of equal
// length it takes the one with the latest messages.
func (t *Transaction) Critical() []bool { return new(Paths).Critical(t.Hops()) }

// Paths finds the critical paths of one transaction after another. It reuses its memory.
type Paths struct {
	on     []bool
	before []int
	depth  map[int]int // length of the longest chain that a function has received
	last   map[int]int // the last message of that chain
}

// Critical is like Transaction.Critical. The result is valid until the next call.
func (p *Paths) Critical(hops []Hop) []bool {
	if p.depth == nil {
		p.depth, p.last = map[int]int{}, map[int]int{}
	}
	clear(p.depth)
	clear(p.last)
	p.on, p.before = p.on[:0], p.before[:0]
	end := -1
	for i, h := range hops {
		before := -1
		if at, ok := p.last[h.From]; ok {
			before = at
		}
		p.on, p.before = append(p.on, false), append(p.before, before)
		if h.Async {
			continue
		}
		end = i
		if d := p.depth[h.From] + 1; d >= p.depth[h.To] {
			p.depth[h.To], p.last[h.To] = d, i
		}
	}
	for at := end; at >= 0; at = p.before[at] {
		p.on[at] = true
	}
	return p.on
}

// Length returns the length of the longest chain up to the end of the transaction. weight
// returns the length that a message adds. ready is scratch space of the caller, with an
// element for each function.
func Length(hops []Hop, ready []int, weight func(Hop) int) int {
	clear(ready)
	length := 0
	for _, h := range hops {
		if h.Async {
			continue
		}
		length = ready[h.From] + weight(h)
		ready[h.To] = max(ready[h.To], length)
	}
	return length
}

// Causes returns for each message the index of the message that made its sender send it, or
// -1: the latest message that the sender had received. An asynchronous message never causes
// one that is not asynchronous.
func Causes(hops []Hop) []int {
	causes := make([]int, len(hops))
	latest, waited := map[int]int{}, map[int]int{}
	for i, h := range hops {
		causes[i] = -1
		from := waited
		if h.Async {
			from = latest
		}
		if at, ok := from[h.From]; ok {
			causes[i] = at
		}
		latest[h.To] = i
		if !h.Async {
			waited[h.To] = i
		}
	}
	return causes
}

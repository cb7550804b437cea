package message

import (
	"context"
	"errors"
	"net/netip"

	"vitrine/affinity/capture"
	"vitrine/affinity/stream"
)

// Read merges captures by time and passes each message to handle. It returns a Summary of
// what it has read, also with an error.
//
// Messages come in order of time, except those that waited for lost bytes of their TCP
// connection. If a clock was set back, the order begins again at a message with SetBack.
//
// Read stops at an error of handle and returns it. A file that is not a capture is a
// *vitrine.BadInput. A file that cannot be read to its end is a *capture.Damage: everything
// before the damage was handled.
func Read(ctx context.Context, captures []string, o Options, handle func(*Message) error) (*Summary, error) {
	r := newReading(o, handle)
	clocks, err := findClocks(ctx, captures)
	if err != nil {
		return r.summarise(nil), err
	}
	source, err := capture.Open(captures, capture.Options{MaxMemory: r.o.fragments(), Correct: clocks.correct(), Incomplete: r.incomplete})
	if err != nil {
		return r.summarise(nil), err
	}
	defer source.Close() // opened read-only
	summary, err := r.read(ctx, source)
	summary.Clocks = clocks.list()
	return summary, err
}

// ReadLive is like Read, but captures on network interfaces until stop is done. It calls
// heard when the capture has started.
func ReadLive(ctx, stop context.Context, live capture.LiveOptions, o Options, heard func(), handle func(*Message) error) (*Summary, error) {
	r := newReading(o, handle)
	live.MaxMemory, live.Ring, live.Incomplete = r.o.fragments(), r.o.MaxMemory/8, r.incomplete
	source, err := capture.Listen(stop, live)
	if err != nil {
		return r.summarise(nil), err
	}
	heard()
	summary, err := r.read(ctx, source)
	return summary, errors.Join(err, source.Close())
}

// A source delivers packets.
type source interface {
	Next() *capture.Packet
	Counts() *capture.Counts
	Err() error // after Next returned nil
}

// read reads all packets.
func (r *reading) read(ctx context.Context, s source) (*Summary, error) {
	const often = 1 << 12
	for n := 0; ; n++ {
		p := s.Next()
		if p == nil {
			break
		}
		if n%often == 0 {
			if err := ctx.Err(); err != nil {
				return r.summarise(s.Counts()), err
			}
			if r.o.Progress != nil {
				r.o.Progress(s.Counts().Bytes)
			}
		}
		if r.packet(p); r.err != nil {
			return r.summarise(s.Counts()), r.err
		}
	}
	r.finish()
	summary := r.summarise(s.Counts())
	return summary, errors.Join(r.err, s.Err())
}

// A reading turns packets into messages. Its decoders are in the files of their protocols.
type reading struct {
	o       Options
	handle  func(*Message) error
	err     error // of handle
	id      uint64
	begin   int64
	end     int64
	last    int64 // time of the latest packet since a clock was set back
	setBack bool  // a clock was set back since the last message
	copies  uint64
	packets uint64

	disordered uint64

	finder    *capture.Finder
	assembler *stream.Assembler
	tcp       tcp
	paths     map[uint64]path // of the directions of SCTP associations, and of their further addresses
	where     capture.Where   // of the current packet

	functions functions
	words     words
	exchanges exchanges
	hold      hold
	edges     edges
	counts    counts
	decoders  decoders
}

func newReading(o Options, handle func(*Message) error) *reading {
	o = o.withDefaults()
	r := &reading{o: o, handle: handle}
	const seen = 160 // bytes of a packet that a Finder remembers
	r.finder = capture.NewFinder(window, o.MaxMemory/16/seen)
	r.assembler = stream.NewAssembler(&tcpHandler{r}, stream.Options{MaxMemory: o.MaxMemory / 4})
	r.tcp.limit = o.MaxMemory / 8
	r.paths = map[uint64]path{}
	r.exchanges.init(o.MaxMemory/4/exchangeSize, int64(o.Repeated))
	r.hold.window, r.hold.limit = int64(window), max(o.MaxMemory/8/slotSize, 64)
	r.functions.init(o.Name, o.Hide)
	r.words.init()
	r.edges.init()
	return r
}

// An origin says where a message comes from.
type origin struct {
	at       int64
	where    capture.Where
	src, dst netip.AddrPort
	ports    [2]bool // whether the port of src, and the port of dst, receives requests
	link     uint64  // the association or connection, for both directions
	hash     uint64  // of the transmission; 0: the transport hides retransmissions
}

// packet reads one packet, and delivers the messages whose copies have had time to arrive.
func (r *reading) packet(p *capture.Packet) {
	switch {
	case p.SetBack: // all waiting messages are older than this packet
		r.drain()
		r.last, r.setBack = p.Time, true
	case r.packets == 0:
		r.last = p.Time
	case r.last-p.Time > int64(window): // the finder and the hold have forgotten what belongs to this packet
		r.disordered++
	}
	r.last = max(r.last, p.Time)
	r.take(p)
	r.release(p.Time)
}

func (r *reading) take(p *capture.Packet) {
	if r.packets++; r.packets == 1 {
		r.begin = p.Time
	}
	r.begin, r.end = min(r.begin, p.Time), max(r.end, p.Time)
	seen := r.finder.Find(p)
	src, dst := p.Src, p.Dst
	if p.Transport == capture.SCTP {
		src, dst = r.firstPath(p)
	}
	switch seen.Kind {
	case capture.Copy:
		r.copies++
		r.hold.arrived(src, dst, p.Time-int64(seen.Delay), p.Time)
		return
	case capture.Duplicate:
		r.copies++
		return
	}
	if p.Src.Addr() == p.Dst.Addr() {
		r.functions.share(p.Src.Addr())
	}
	r.where = p.Where
	if p.Transport == capture.TCP {
		r.assembler.Add(p)
		return
	}
	o := origin{at: p.Time, where: p.Where, src: src, dst: dst, ports: [2]bool{true, true}}
	if p.Transport == capture.SCTP {
		o.hash = join(uint64(p.Tag), uint64(p.TSN)) | 1
		r.chunk(&o, p)
		return
	}
	if len(p.Payload) > 0 {
		r.datagram(&o, p)
	}
}

// linkOf returns the hash of the association or connection between two ends.
func linkOf(o *origin) uint64 { return hashPair(hashEnd(o.src), hashEnd(o.dst)) }

// slot returns a slot for a new message, with its origin set.
func (r *reading) slot(o *origin, p Protocol) *slot {
	s := r.hold.take()
	m := &s.m
	m.Time, m.Where, m.Src, m.Dst, m.Protocol = o.at, o.where, o.src, o.dst, p
	s.from, s.to = r.functions.of(o.src, o.ports[0], 0, maxFunctions), r.functions.of(o.dst, o.ports[1], 1, maxFunctions)
	m.From, m.To = s.from.Name, s.to.Name
	s.hash = o.hash
	return s
}

// commit queues a message for delivery after its copies have had time to arrive, or at once if the
// queue is full. The caller must not use the slot any more.
func (r *reading) commit(s *slot) {
	s.m.Time = min(s.m.Time, r.last) // later only if it began before the clock was set back
	r.hold.push(s)
	// The end of a gap may deliver any number of messages within one packet.
	for r.hold.open > r.hold.limit && r.hold.head < len(r.hold.waiting) {
		r.hold.hurried++
		r.deliver(r.hold.remove())
	}
}

// release delivers the messages that have waited for longer than the window.
func (r *reading) release(now int64) {
	for s := r.hold.pop(now); s != nil; s = r.hold.pop(now) {
		r.deliver(s)
	}
}

// deliver gives a message to the handler.
func (r *reading) deliver(s *slot) {
	m := &s.m
	r.id++
	m.ID = r.id
	m.SetBack, r.setBack = r.setBack, false
	request := r.exchanges.settle(s)
	if s.status != 0 {
		m.Name = r.answerName(m.Protocol, s.status, request)
	}
	r.counts.add(m)
	if rest := &r.functions.rest; s.from == rest || s.to == rest {
		r.functions.given++
	}
	if m.Kind != Repeat {
		s.from.Sent++
		s.to.Received++
		s.from.Bytes += uint64(m.Bytes)
		s.to.Bytes += uint64(m.Bytes)
	}
	if r.err == nil {
		r.err = r.handle(m)
	}
	r.hold.recycle(s)
}

// finish delivers all remaining messages at the end of the captures.
func (r *reading) finish() {
	r.assembler.Flush()
	r.drain()
}

// drain delivers all waiting messages.
func (r *reading) drain() {
	for r.hold.head < len(r.hold.waiting) {
		r.deliver(r.hold.remove())
	}
}

func (r *reading) summarise(c *capture.Counts) *Summary {
	s := &Summary{Begin: Instant(r.begin), End: Instant(r.end), Messages: r.id, Copies: r.copies, Disordered: r.disordered, Protocols: r.counts.list(),
		Functions: r.functions.list(), Unknown: r.edges.list(), Streams: *r.assembler.Counts(), Clocks: []Clock{}}
	if c != nil {
		s.Captures = *c
	}
	s.GivenUp = GivenUp{Requests: r.exchanges.given, Copies: r.finder.GivenUp(), Hurried: r.hold.hurried, Streams: r.tcp.given,
		Edges: r.edges.dropped, Functions: r.functions.given, Names: r.words.others}
	return s
}

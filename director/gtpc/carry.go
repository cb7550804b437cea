package gtpc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"vitrine/director/table"
	"vitrine/wire/gtpc"
)

// Carry writes the Server's exchanges and learned TEIDs, for another process on the same
// host, with the same clock, to take over. Run must have returned. Carry does not include
// the memories of the workers: see Steerings.
func (s *Server) Carry(to io.Writer) error {
	now := s.config.Now()
	out := binary.BigEndian.AppendUint32(nil, s.exchanges.next.Load())
	out = append(out, byte(len(s.config.Addresses)))
	for _, a := range s.config.Addresses {
		own := placeOf(a)
		out = own.append(out)
	}
	if _, err := to.Write(out); err != nil {
		return fmt.Errorf("hand over GTP-C exchanges: %w", err)
	}
	if err := s.exchanges.carry(now, to); err != nil {
		return fmt.Errorf("hand over GTP-C exchanges: %w", err)
	}
	if err := errors.Join(s.sessions.carry(now, to), s.peers.carry(now, to)); err != nil {
		return fmt.Errorf("hand over learned TEIDs: %w", err)
	}
	return nil
}

// TakeOver reads what Carry wrote, before Run, and returns the number of exchanges and
// TEIDs taken over. If this Server has less room, it keeps the latest ones. It drops
// exchanges of listeners that it does not have. numbers has the type numbers here by those of
// the writer; -1: the type is gone; nil: they are the same. TakeOver drops what belongs to
// instances of a gone type, except the TEIDs of peers.
func (s *Server) TakeOver(from io.Reader, numbers []int) (n int, err error) {
	var next [4]byte
	if _, err := io.ReadFull(from, next[:]); err != nil {
		return 0, fmt.Errorf("take GTP-C exchanges over: %w", err)
	}
	listeners, err := s.takeListeners(from)
	if err != nil {
		return 0, fmt.Errorf("take GTP-C exchanges over: %w", err)
	}
	exchanges, err := s.exchanges.takeOver(from, listeners, numbers)
	if err != nil {
		return exchanges, fmt.Errorf("take GTP-C exchanges over: %w", err)
	}
	s.exchanges.next.Store(binary.BigEndian.Uint32(next[:]))
	n = exchanges
	for _, l := range []*learned{s.sessions, s.peers} {
		more, err := l.takeOver(from, numbers, l == s.peers) // instances of other types may use a peer's TEID
		n += more
		if err != nil {
			return n, fmt.Errorf("take learned TEIDs over: %w", err)
		}
	}
	return n, nil
}

// renumber replaces the number of the instance's type. It returns false if the type is gone.
func (i *instance) renumber(numbers []int) bool {
	switch {
	case numbers == nil || i.id == 0: // the same numbers, a peer, or an unused entry
		return true
	case int(i.ty) >= len(numbers) || numbers[i.ty] < 0:
		return false
	}
	i.ty = table.Type(numbers[i.ty])
	return true
}

// takeListeners reads the listeners of the previous process. It returns the index of each
// in this process, or -1.
func (s *Server) takeListeners(from io.Reader) ([]int, error) {
	var in [placeSize]byte
	if _, err := io.ReadFull(from, in[:1]); err != nil {
		return nil, err
	}
	all := make([]int, in[0])
	for i := range all {
		if _, err := io.ReadFull(from, in[:]); err != nil {
			return nil, err
		}
		was := readPlace(in[:])
		all[i] = slices.Index(s.config.Addresses, was.addrPort())
	}
	return all, nil
}

const (
	placeSize    = 16 + 2 + 1
	exchangeSize = 3*placeSize + 6*4 + 8 + 2*3 + 3
	learnedSize  = 3*4 + 3 + 8 + 1 + placeSize
	carryChunk   = 1 << 16
)

// carry writes the number of live exchanges and then the exchanges, the oldest first.
func (x *exchanges) carry(now time.Duration, to io.Writer) error {
	alive := make([]exchange, 0, len(x.ring))
	next := x.next.Load()
	for i := range uint32(len(x.ring)) {
		e := x.ring[(next+1+i)&uint32(len(x.ring)-1)]
		if e.live && x.isLive(e.began, now) {
			alive = append(alive, e)
		}
	}
	out := binary.BigEndian.AppendUint32(nil, uint32(len(alive)))
	for i := range alive {
		out = alive[i].append(out)
		if len(out) > carryChunk {
			if _, err := to.Write(out); err != nil {
				return err
			}
			out = out[:0]
		}
	}
	_, err := to.Write(out)
	return err
}

func (x *exchanges) takeOver(from io.Reader, listeners, types []int) (n int, err error) {
	var head [4]byte
	if _, err := io.ReadFull(from, head[:]); err != nil {
		return 0, err
	}
	in := make([]byte, exchangeSize)
	for range binary.BigEndian.Uint32(head[:]) {
		if _, err := io.ReadFull(from, in); err != nil {
			return n, err
		}
		e := readExchange(in)
		if e.number == 0 || e.number >= numbers {
			return n, fmt.Errorf("sequence number %d is out of range", e.number)
		}
		if int(e.listener) >= len(listeners) || listeners[e.listener] < 0 || !e.receiver.renumber(types) || !e.sender.renumber(types) {
			continue
		}
		e.listener = uint8(listeners[e.listener])
		x.put(e)
		n++
	}
	return n, nil
}

// carry writes the number of entries and then the entries. The first has the secret as its address, and
// the TEID 0, because versions without a secret take that for an unused entry.
func (l *learned) carry(now time.Duration, to io.Writer) error {
	seconds := uint32(now / time.Second)
	count := uint32(1)
	each := func(do func(*learnedEntry)) {
		for i := range l.buckets {
			for k := range l.buckets[i] {
				if e := &l.buckets[i][k]; l.live(e, seconds) {
					do(e)
				}
			}
		}
	}
	each(func(*learnedEntry) { count++ })
	first := learnedEntry{owner: owner{address: place{ip: l.secret}}}
	out := first.append(binary.BigEndian.AppendUint32(nil, count))
	var err error
	each(func(e *learnedEntry) {
		out = e.append(out)
		if len(out) > carryChunk && err == nil {
			_, err = to.Write(out)
			out = out[:0]
		}
	})
	if err == nil {
		_, err = to.Write(out)
	}
	return err
}

// takeOver reads what carry wrote, while l is empty. Entries of a gone type stay without their instance
// if keeps is set, and are dropped otherwise.
func (l *learned) takeOver(from io.Reader, numbers []int, keeps bool) (n int, err error) {
	var head [4]byte
	if _, err := io.ReadFull(from, head[:]); err != nil {
		return 0, err
	}
	in := make([]byte, learnedSize)
	for range binary.BigEndian.Uint32(head[:]) {
		if _, err := io.ReadFull(from, in); err != nil {
			return n, err
		}
		e := readLearned(in)
		if e.teid == 0 { // the first entry
			l.secret = e.address.ip
			continue
		}
		if !e.renumber(numbers) {
			if !keeps {
				continue
			}
			e.instance = instance{}
		}
		b, lock := l.bucket(e.teid)
		lock.Lock()
		l.enter(b, e)
		lock.Unlock()
		n++
	}
	return n, nil
}

func (p *place) append(b []byte) []byte {
	return append(binary.BigEndian.AppendUint16(append(b, p.ip[:]...), p.port), flags(p.four))
}

func readPlace(b []byte) place {
	return place{ip: [16]byte(b), port: binary.BigEndian.Uint16(b[16:]), four: b[18]&1 != 0}
}

func (i instance) append(b []byte) []byte {
	return binary.BigEndian.AppendUint16(append(b, byte(i.ty)), i.id)
}

func readInstance(b []byte) instance {
	return instance{table.Type(b[0]), binary.BigEndian.Uint16(b[1:])}
}

func (e *exchange) append(b []byte) []byte {
	b = e.claim.address.append(e.to.append(e.from.append(b)))
	for _, v := range []uint32{e.began, e.sequence, e.number, e.teid, e.claim.given, e.claim.alias} {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	b = e.sender.append(e.receiver.append(binary.BigEndian.AppendUint64(b, e.key)))
	return append(b, e.listener, byte(e.kind), flags(e.answered, e.hasKey, e.linked))
}

func readExchange(b []byte) exchange {
	e := exchange{from: readPlace(b), to: readPlace(b[placeSize:]), live: true}
	e.claim.address = readPlace(b[2*placeSize:])
	b = b[3*placeSize:]
	for i, v := range []*uint32{&e.began, &e.sequence, &e.number, &e.teid, &e.claim.given, &e.claim.alias} {
		*v = binary.BigEndian.Uint32(b[4*i:])
	}
	b = b[6*4:]
	e.key, e.receiver, e.sender = binary.BigEndian.Uint64(b), readInstance(b[8:]), readInstance(b[11:])
	e.listener, e.kind = b[14], gtpc.Type(b[15])
	e.answered, e.hasKey, e.linked = b[16]&1 != 0, b[16]&2 != 0, b[16]&4 != 0
	return e
}

func (e *learnedEntry) append(b []byte) []byte {
	for _, v := range []uint32{e.teid, e.seconds, e.given} {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	b = binary.BigEndian.AppendUint64(e.instance.append(b), e.key)
	return e.address.append(append(b, flags(e.hasKey, e.claimed, e.ended)))
}

func readLearned(b []byte) (e learnedEntry) {
	e.teid, e.seconds, e.given = binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[8:])
	b = b[3*4:]
	e.instance, e.key = readInstance(b), binary.BigEndian.Uint64(b[3:])
	e.hasKey, e.claimed, e.ended, e.address = b[11]&1 != 0, b[11]&2 != 0, b[11]&4 != 0, readPlace(b[12:])
	return e
}

func flags(bits ...bool) (b byte) {
	for i, bit := range bits {
		if bit {
			b |= 1 << i
		}
	}
	return b
}

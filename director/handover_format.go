package director

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"vitrine/director/table"
)

// The old process writes a sequence of sections to the new one: first the order of the types, the
// instances that are away, the epochs and the rates of the gates, then the memory of each worker and
// the GTP-C exchanges, last the meter's counts.
// Each section begins with a header, the section struct in big-endian order. The
// header gives the length of the body, so that a new process with other workers
// or listeners can skip a section that it does not need.
const (
	epochsSection    byte = iota // table.Epochs
	sipSection                   // the table.Steering of one SIP worker
	gtpcSection                  // the table.Steering of one GTP-C worker
	_                            // exchanges of versions without claims of TEIDs; skipped
	countsSection                // meter.Meter; the last section
	exchangesSection             // the exchanges, learned TEIDs and claims of GTP-C
	s1apSection                  // the table.Steering of one S1AP worker
	awaySection                  // the instances that are away; before the epochs
	typesSection                 // the names of the types, by number; the first section
	gatesSection                 // what the gates have learned, by type
)

// ahead is how many memories are taken over at once. Nothing serves meanwhile, and there may be as
// many memories as cores. ahead bounds the room that their bodies take.
const ahead = 8

// A section is the header of one section.
type section struct {
	Kind      byte
	Index, Of uint32 // of a worker's memory: the worker's number, and how many there are
	Length    uint64 // of the body, in bytes
}

// A part is a section and the function that writes its body.
type part struct {
	section
	carry func(io.Writer) error
}

// parts lists the sections in the order in which they are written.
func (d *Director) parts() (all []part) {
	add := func(s section, carry func(io.Writer) error) { all = append(all, part{s, carry}) }
	add(section{Kind: typesSection}, d.carryTypes)
	add(section{Kind: awaySection}, d.watch.carry)
	add(section{Kind: epochsSection}, d.epochs.Carry)
	add(section{Kind: gatesSection}, d.carryGates)
	for _, p := range d.protocols {
		steerings := p.Steerings()
		for i, s := range steerings {
			of := section{Kind: p.section, Index: uint32(i), Of: uint32(len(steerings))}
			add(of, func(to io.Writer) error { return s.Carry(d.now(), to) })
		}
		if p.shared != nil {
			add(section{Kind: exchangesSection}, p.shared.Carry)
		}
	}
	add(section{Kind: countsSection}, d.meter.Carry)
	return all
}

// handOver writes the memories of the workers, which have stopped.
func (d *Director) handOver(to io.Writer) error {
	out := bufio.NewWriterSize(to, 1<<16)
	var body bytes.Buffer // for all sections, so that its memory is allocated once
	for _, p := range d.parts() {
		body.Reset()
		if err := p.carry(&body); err != nil {
			return err
		}
		p.Length = uint64(body.Len())
		if err := binary.Write(out, binary.BigEndian, p.section); err != nil {
			return err
		}
		if _, err := body.WriteTo(out); err != nil {
			return err
		}
	}
	return out.Flush()
}

// takeOver reads what handOver wrote. A section with an error does not affect the others.
func (d *Director) takeOver(from io.Reader) (keys int, err error) {
	in := bufio.NewReaderSize(from, 1<<16)
	var taken atomic.Int64
	var beside errgroup.Group // takes over the memories of single workers; it keeps the first error
	beside.SetLimit(ahead)
	for last := false; !last; {
		s, body, cut := readSection(in)
		if cut != nil {
			err = errors.Join(err, fmt.Errorf("the handed-over data ends too early: %w", cut))
			break
		}
		take := func() error {
			n, wrong := d.takeSection(s, body)
			taken.Add(int64(n))
			return wrong
		}
		if d.isForOne(s) {
			beside.Go(take)
		} else {
			err = errors.Join(err, take())
		}
		last = s.Kind == countsSection
	}
	err = errors.Join(err, beside.Wait())
	return int(taken.Load()), err
}

// readSection reads a section and its body.
func readSection(in io.Reader) (s section, body []byte, err error) {
	if err := binary.Read(in, binary.BigEndian, &s); err != nil {
		return s, nil, err
	}
	var b bytes.Buffer
	// One piece, so that nothing is copied. A wrong length must not take all memory.
	b.Grow(int(min(s.Length, 1<<26)) + bytes.MinRead)
	_, err = io.CopyN(&b, in, int64(s.Length))
	return s, b.Bytes(), err
}

// isForOne reports whether a section is the memory of one worker for one worker here. No other
// section then changes the memory of that worker.
func (d *Director) isForOne(s section) bool {
	return slices.ContainsFunc(d.protocols, func(p *protocol) bool {
		return p.section == s.Kind && len(p.Steerings()) == int(s.Of)
	})
}

func (d *Director) takeSection(s section, body []byte) (keys int, err error) {
	in := bytes.NewReader(body)
	switch s.Kind {
	case typesSection:
		return 0, d.takeTypes(in)
	case awaySection:
		return 0, d.watch.takeOver(in)
	case epochsSection:
		return 0, d.epochs.TakeOver(in, d.conditionBut(d.inPanic(d.epochs.View().Table)))
	case gatesSection:
		return 0, d.takeGates(in)
	case countsSection:
		return 0, d.takeCounts(in)
	}
	for _, p := range d.protocols {
		switch {
		case s.Kind == p.section && d.reordered:
			return 0, nil // the memory has hashes of the old numbers
		case s.Kind == p.section:
			return takeMemory(p.Steerings(), s, body)
		case s.Kind == exchangesSection && p.shared != nil:
			return p.shared.TakeOver(in, d.numbers)
		}
	}
	return 0, nil
}

// carryTypes writes the names of the types in the order of their numbers, for the next process.
func (d *Director) carryTypes(to io.Writer) error {
	if err := json.NewEncoder(to).Encode(d.epochs.View().Table.Types()); err != nil {
		return fmt.Errorf("hand over the order of the types: %w", err)
	}
	return nil
}

// takeTypes reads what carryTypes wrote, and sets d.numbers and d.reordered.
func (d *Director) takeTypes(from io.Reader) error {
	var were []string
	if err := json.NewDecoder(from).Decode(&were); err != nil {
		return fmt.Errorf("take over the order of the types: %w", err)
	}
	here := d.epochs.View().Table.Types()
	d.numbers = make([]int, len(were))
	for i, name := range were {
		d.numbers[i] = slices.Index(here, name)
	}
	n := min(len(were), len(here))
	if d.reordered = !slices.Equal(were[:n], here[:n]); d.reordered {
		d.log.Info("the order of the types has changed, so all keys go by the table")
	}
	return nil
}

// takeMemory gives a worker's memory to the worker with the same index. If the number of
// workers differs, it gives the memory to all of them, because the kernel then chooses
// other workers for the same clients.
func takeMemory(to []*table.Steering, s section, body []byte) (keys int, err error) {
	var taking sync.WaitGroup
	counts, errs := make([]int, len(to)), make([]error, len(to))
	for i, own := range to {
		if len(to) == int(s.Of) && i != int(s.Index) {
			continue
		}
		taking.Go(func() { counts[i], errs[i] = own.TakeOver(bytes.NewReader(body)) })
	}
	taking.Wait()
	return slices.Max(counts), errors.Join(errs...)
}

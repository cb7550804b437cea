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

	"vitrine/director/table"
)

// The old process writes a sequence of sections to the new one: first the order of the types, the
// instances that are away and the epochs, then the memory of each worker and the GTP-C exchanges,
// then the rates of the gates, last the meter's counts.
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
	add(section{Kind: gatesSection}, d.carryGates)
	add(section{Kind: countsSection}, d.meter.Carry)
	return all
}

// handOver writes the memories of the workers, which have stopped.
func (d *Director) handOver(to io.Writer) error {
	out := bufio.NewWriterSize(to, 1<<16)
	for _, p := range d.parts() {
		var body bytes.Buffer
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
	for last := false; !last; {
		var s section
		var body bytes.Buffer
		cut := binary.Read(in, binary.BigEndian, &s)
		if cut == nil {
			_, cut = io.CopyN(&body, in, int64(s.Length))
		}
		if cut != nil {
			return keys, errors.Join(err, fmt.Errorf("the handed-over data ends too early: %w", cut))
		}
		n, wrong := d.takeSection(s, body.Bytes())
		keys, err = keys+n, errors.Join(err, wrong)
		last = s.Kind == countsSection
	}
	return keys, err
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
	for i, own := range to {
		if len(to) == int(s.Of) && i != int(s.Index) {
			continue
		}
		n, wrong := own.TakeOver(bytes.NewReader(body))
		keys, err = max(keys, n), errors.Join(err, wrong)
	}
	return keys, err
}

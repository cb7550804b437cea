package packet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"vitrine/measure/cpu"
)

// A Usage is the CPU time of a span, measured in up to three ways.
type Usage struct {
	Span    int64         `json:"span_ns"`
	Busy    int64         `json:"busy_ns"`           // of the sender's CPU, by its waiting loop
	Missed  int64         `json:"missed_ns"`         // of the soaker's CPU, by the soaker; 0 without a soaker
	Counted []cpu.Reading `json:"counted,omitempty"` // by CPU, by BPF
}

// A gauge reads its instruments at both ends of a span. Each instrument is optional.
type gauge struct {
	soaked string // the soaker's file
	meter  *cpu.Meter
	at     []moment
	err    error
}

// A moment is one reading of the instruments.
type moment struct {
	soaked   cpu.Soaked
	readAt   time.Time // of soaked
	readings []cpu.Reading
}

// read takes a reading, at the beginning of a span and at its end.
func (g *gauge) read() {
	var m moment
	var err error
	if g.soaked != "" {
		m.soaked, err = cpu.ReadSoaked(g.soaked)
		m.readAt = time.Now()
		g.err = errors.Join(g.err, err)
	}
	if g.meter != nil {
		m.readings, _, err = g.meter.Read()
		g.err = errors.Join(g.err, err)
	}
	g.at = append(g.at, m)
}

// usage returns the CPU time between the last two readings. sent describes that span.
func (g *gauge) usage(sent Sent) (*Usage, error) {
	if g.err != nil || len(g.at) < 2 {
		return nil, errors.Join(fmt.Errorf("%d readings of the CPU time", len(g.at)), g.err)
	}
	from, to := g.at[len(g.at)-2], g.at[len(g.at)-1]
	u := &Usage{Span: sent.End - sent.Began, Busy: int64(sent.Busy())}
	if g.soaked != "" {
		u.Missed = int64(to.readAt.Sub(from.readAt) - to.soaked.Spent(from.soaked))
	}
	for i := range min(len(from.readings), len(to.readings)) {
		u.Counted = append(u.Counted, to.readings[i].Sub(from.readings[i]))
	}
	return u, nil
}

// idleSpan is the length of the span without packets whose CPU time is measured.
const idleSpan = 300 * time.Millisecond

// sendGauged sends the stream and measures its CPU time. Before the stream, it measures
// the CPU time of a span without packets.
func (s *Sender) sendGauged(ctx context.Context, stream Stream, g *gauge) (*Record, error) {
	stream.Around = g.read
	idle, err := s.Idle(ctx, stream, idleSpan)
	if err != nil {
		return nil, err
	}
	background, err := g.usage(idle)
	if err != nil {
		return nil, err
	}
	sent, err := s.Send(ctx, stream)
	if err != nil {
		return nil, err
	}
	used, err := g.usage(sent)
	if err != nil {
		return nil, err
	}
	return &Record{Sent: &sent, Background: background, Used: used}, nil
}

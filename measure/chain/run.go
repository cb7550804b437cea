package chain

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"vitrine/measure/delay"
	"vitrine/measure/packet"
)

const (
	attempts  = 3                      // at a stream, before what it gave stays invalid
	quiet     = 200 * time.Millisecond // after the last reply
	patience  = 2 * time.Second        // for the first
	warmSize  = 20                     // probes that show that a chain answers
	warmQuiet = 50 * time.Millisecond
)

// Run deploys the chain, measures all lengths in turn, and removes it.
func Run(ctx context.Context, c Config) (r Report, err error) {
	if err := c.Settings.Check(); err != nil {
		return r, err
	}
	if c.Settings.Wait == 0 {
		c.Settings.Wait = DefaultWait
	}
	if c.Observe == nil {
		c.Observe = func(Event) {}
	}
	label := fnv.New32a()
	_, _ = label.Write([]byte(c.RunID))
	c.Observe(Event{Doing: fmt.Sprintf("deploying %d hops of %s on %s", c.Settings.most(), c.Settings.Substrate, c.Settings.Fabric)})
	d, err := deploy(ctx, &c, label.Sum32())
	defer func() {
		err = errors.Join(err, d.remove(context.WithoutCancel(ctx)))
	}()
	if err != nil {
		return r, err
	}
	m := &measurement{deployment: d, report: &r}
	r.Settings = c.Settings
	if err := m.all(ctx); err != nil {
		return r, err
	}
	r.Hops = d.hopsSeen()
	r.summarize()
	return r, nil
}

// A measurement goes through the streams.
type measurement struct {
	*deployment
	report *Report
	number uint16 // of the stream
	done   int
	held   time.Duration // by the hop with the injection, now
}

// sides are whether a repeat is measured without and with the injection.
func (m *measurement) sides(repeat int) []bool {
	switch {
	case m.config.Settings.Inject.Hop == 0:
		return []bool{false}
	case repeat%2 == 0: // in turn, so that a drift of the host favours none
		return []bool{true, false}
	}
	return []bool{false, true}
}

func (m *measurement) all(ctx context.Context) error {
	s := m.config.Settings
	for repeat := 1; repeat <= s.Repeat; repeat++ {
		for _, injected := range m.sides(repeat) {
			if err := m.inject(ctx, injected); err != nil {
				return err
			}
			// A repeat begins with another length each time, for the same reason.
			for i := range s.Lengths {
				length := s.Lengths[(i+repeat-1)%len(s.Lengths)]
				if err := m.length(ctx, repeat, length, injected); err != nil {
					return fmt.Errorf("a chain of %d hops: %w", length, err)
				}
			}
		}
	}
	return nil
}

// inject has the hop hold frames, or not.
func (m *measurement) inject(ctx context.Context, injected bool) error {
	i := m.config.Settings.Inject
	hold := time.Duration(0)
	if injected {
		hold = i.Delay
	}
	if hold == m.held {
		return nil
	}
	m.held = hold
	return m.forward(ctx, i.Hop, hold)
}

// length measures one stream, again where the sender could not hold its rate.
func (m *measurement) length(ctx context.Context, repeat, length int, injected bool) error {
	if err := m.route(ctx, length); err != nil {
		return err
	}
	if err := m.await(ctx, length); err != nil {
		return err
	}
	s := m.config.Settings
	m.done++
	for attempt := 1; ; attempt++ {
		stream, err := m.stream(ctx, length, s.Packets, s.Rate, quiet, s.Cut)
		if err != nil {
			return err
		}
		stream.Repeat, stream.Injected = repeat, injected
		if !stream.Valid && attempt < attempts {
			continue
		}
		if !stream.Valid {
			m.report.Notes = append(m.report.Notes, fmt.Sprintf("length %d, repeat %d: left out: %s", length, repeat, stream.Reason))
		}
		m.report.Streams = append(m.report.Streams, stream)
		m.config.Observe(Event{Stream: &stream, Done: m.done, Of: s.Repeat * len(s.Lengths) * len(m.sides(1))})
		return nil
	}
}

// route has the fabric's rules lead through so many hops, where it is they that
// forward.
func (m *measurement) route(ctx context.Context, length int) error {
	if m.steer == nil {
		return nil
	}
	if length == 0 {
		return m.steer.Chain(ctx, nil)
	}
	path := []string{m.sender.name}
	for number := length; number >= 1; number-- {
		path = append(path, m.hops[number-1].name)
	}
	return m.steer.Chain(ctx, append(path, m.receiver.name))
}

// await returns once the chain answers.
func (m *measurement) await(ctx context.Context, length int) error {
	for end := time.Now().Add(m.config.Settings.Wait); ; {
		stream, err := m.stream(ctx, length, warmSize, DefaultRate, warmQuiet, delay.Cut{})
		if err != nil {
			return err
		}
		if stream.Network.Received == warmSize {
			return nil
		}
		for _, hop := range m.hops[:length] {
			select {
			case <-hop.process.Done():
				return errors.Join(fmt.Errorf("the forwarder of %s ended: %s", hop.name, hop.said()), hop.process.Err())
			default:
			}
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d of %d probes came back within %s; hop %d says: %s", stream.Network.Received, warmSize,
				m.config.Settings.Wait, length, m.entry(length).said())
		}
	}
}

// stream sends probes into the chain and takes what comes back.
func (m *measurement) stream(ctx context.Context, length, packets int, rate float64, silence time.Duration, cut delay.Cut) (Stream, error) {
	s := m.config.Settings
	m.number++
	in, err := packet.OpenReceiver(packet.ReceiverConfig{
		NetNS: m.sender.instance.NetNS(), Address: m.source(), CPU: -1, Run: m.run, Stream: m.number,
	})
	if err != nil {
		return Stream{}, err
	}
	sent, err := m.sending.Send(ctx, packet.Stream{
		Run: m.run, ID: m.number, Size: s.Size, Packets: packets, Rate: rate,
		Ends: packet.Ends{SourceMAC: m.sender.mac, DestMAC: m.entry(length).mac, Source: m.source(), Dest: m.dest()},
	})
	if err != nil {
		return Stream{}, errors.Join(err, in.Close())
	}
	limit, cancel := context.WithTimeout(ctx, min(patience, 4*silence))
	defer cancel()
	got, err := in.Receive(limit, packets, silence)
	if err := errors.Join(err, in.Close(), context.Cause(ctx)); err != nil {
		return Stream{}, err
	}
	arrivals := make([]delay.Packet, len(got.Receptions))
	for i, x := range got.Receptions {
		arrivals[i] = delay.Packet{Sequence: x.Sequence, Sent: x.Sent, Received: x.Kernel}
	}
	stream := Stream{Length: length, Sent: sent, Dropped: got.Dropped, Valid: true, Network: delay.Analyze(packets, arrivals, cut)}
	switch err := sent.Held(); {
	case err != nil:
		stream.Valid, stream.Reason = false, err.Error()
	case got.Dropped > 0:
		stream.Valid, stream.Reason = false, fmt.Sprintf("the receiving socket had no room for %d replies", got.Dropped)
	case stream.Network.Duplicates > 0:
		stream.Valid, stream.Reason = false, fmt.Sprintf("%d replies came twice: something beside the chain forwards", stream.Network.Duplicates)
	case stream.Network.Received == 0:
		stream.Valid, stream.Reason = false, "no reply came"
	}
	return stream, nil
}

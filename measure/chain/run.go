package chain

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"vitrine"
	"vitrine/measure"
	"vitrine/measure/delay"
	"vitrine/measure/packet"
)

const (
	quiet     = 500 * time.Millisecond // without a reply, until missing replies count as lost
	patience  = 3 * time.Second        // for all replies
	warmSize  = 20                     // probes that test whether a chain answers
	warmQuiet = 50 * time.Millisecond

	defaultWait = 30 * time.Second // for a chain to begin to answer
	bootWait    = 5 * time.Minute  // if its hops are virtual machines
)

// Run measures the streams that are missing in the results. If a chain fails, or this host does
// not support it, Run writes the reason to the manifest and measures the other chains. At the end,
// it returns the errors of the chains that failed.
func Run(ctx context.Context, c Config) error {
	r, err := measure.RunVisits(ctx, &c.Stage, c.Plan.visits, func(ctx context.Context, r *measure.Runner, open []leg) error {
		return measureVisit(ctx, &c, r, open)
	})
	if err != nil {
		return err
	}
	return r.Verdict()
}

// measureVisit measures the streams of one deployment.
func measureVisit(ctx context.Context, c *Config, r *measure.Runner, open []leg) (err error) {
	d, err := deploy(ctx, c, open[0])
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close(context.WithoutCancel(ctx))) }()
	m := &measurement{deployment: d, runner: r}
	for _, l := range open {
		if err := m.measureLeg(ctx, l); err != nil {
			return fmt.Errorf("a chain of %d hops: %w", l.length, err)
		}
	}
	return nil
}

// A measurement measures the streams of one deployment.
type measurement struct {
	*deployment
	runner  *measure.Runner
	number  uint16        // of the last stream
	dropped uint32        // by the echo's socket, up to the last stream
	held    time.Duration // the delay that the injection's hop adds now
}

// inject turns the injected delay on or off.
func (m *measurement) inject(ctx context.Context, injected bool) error {
	i := m.config.Plan.Settings.Inject
	hold := time.Duration(0)
	if injected {
		hold = i.Delay
	}
	if hold == m.held {
		return nil
	}
	m.held = hold
	return m.startForwarder(ctx, i.Hop, hold)
}

// measureLeg measures one stream. It repeats the stream until its outcome is valid. It returns an
// error if a forwarder or the fabric has ended.
func (m *measurement) measureLeg(ctx context.Context, l leg) error {
	if err := m.inject(ctx, l.injected); err != nil {
		return err
	}
	if err := m.route(ctx, l.length); err != nil {
		return err
	}
	if err := m.await(ctx, l.length); err != nil {
		return err
	}
	s := l.settings
	for finished := false; !finished; {
		began := time.Now()
		var stream Stream
		seen, err := m.runner.Watched(ctx, func() (err error) {
			stream, err = m.stream(ctx, l.length, s.Packets, s.Rate, quiet, s.Cut)
			return err
		})
		if err != nil {
			return err
		}
		stream.Injected = l.injected
		ended := m.ended(l.length)
		o, err := stream.outcome(m.runner.Next(l))
		if err != nil {
			return err
		}
		measure.MarkEnded(&o, ended)
		seen.Mark(&o)
		o.Overhead = time.Since(began) - o.Duration
		finished, err = m.runner.Keep(o)
		if err := errors.Join(err, ended); err != nil {
			return err
		}
	}
	return nil
}

// outcome returns the stream in the form of the run folder.
func (s Stream) outcome(key vitrine.Key) (vitrine.Outcome, error) {
	n := s.Network
	o := vitrine.Outcome{
		Key: key, Duration: time.Duration(float64(n.Sent) / key.Rate * 1e9), Scheduled: int64(n.Sent), Offered: int64(n.Sent), Succeeded: int64(n.Received),
		Failed:      map[string]int64{"lost": int64(n.Lost)},
		Latency:     vitrine.Latency{P50: n.Delay.P50 / 1e3, P95: n.Delay.P95 / 1e3, P99: n.Delay.P99 / 1e3},
		Accelerator: s.Accelerator, Valid: true,
	}
	switch err := cmp.Or(s.Sent.Held(), s.Sent.Steady()); {
	case err != nil:
		o.Valid, o.Reason = false, err.Error()
	case s.Dropped > 0:
		o.Valid, o.Reason = false, fmt.Sprintf("the buffer of a receiving socket was full: it dropped %d packets", s.Dropped)
	case n.Duplicates > 0:
		o.Valid, o.Reason = false, fmt.Sprintf("%d duplicate replies: something other than the chain forwards packets", n.Duplicates)
	case n.Received == 0:
		o.Valid, o.Reason = false, "no reply arrived"
	case s.Unstamped > 0:
		o.Valid, o.Reason = false, fmt.Sprintf("the kernel did not stamp %d replies", s.Unstamped)
	}
	var err error
	if o.Measured, err = json.Marshal(s); err != nil {
		return o, fmt.Errorf("trial %d: %w", key.Seq, err)
	}
	return o, nil
}

// route sets the fabric's rules for a chain of the given length, if rules forward
// packets.
func (m *measurement) route(ctx context.Context, length int) error {
	if m.chainer == nil {
		return nil
	}
	if length == 0 {
		return m.chainer.Chain(ctx, nil)
	}
	path := []string{m.sender.Name}
	for number := length; number >= 1; number-- {
		path = append(path, m.hops[number-1].Name)
	}
	return m.chainer.Chain(ctx, append(path, m.receiver.Name))
}

// await returns once the chain answers. Its links may be slow, so each try waits longer than the
// last one.
func (m *measurement) await(ctx context.Context, length int) error {
	wait, silence := m.answerLimit(), warmQuiet
	for end := time.Now().Add(wait); ; silence = min(2*silence, quiet) {
		stream, err := m.stream(ctx, length, warmSize, DefaultRate, silence, delay.Cut{})
		if err != nil {
			return err
		}
		if stream.Network.Received == warmSize {
			return nil
		}
		if err := m.ended(length); err != nil {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d of %d probes came back within %s; the log of hop %d: %s", stream.Network.Received, warmSize,
				wait, length, m.entryHop(length).Log())
		}
	}
}

// ended returns an error if a forwarder of the chain, or a process that the fabric's links need,
// has ended.
func (m *measurement) ended(length int) error {
	for _, hop := range m.hops[:length] {
		if err := hop.Ended(); err != nil {
			return fmt.Errorf("the forwarder of %w", err)
		}
	}
	return m.FabricEnded()
}

// answerLimit returns how long a chain may take to begin to answer.
func (m *measurement) answerLimit() time.Duration {
	switch {
	case m.config.Wait > 0:
		return m.config.Wait
	case m.Accelerator != "": // machines boot first, all of them at once
		return bootWait
	}
	return defaultWait
}

// stream sends probes into the chain and receives the replies.
func (m *measurement) stream(ctx context.Context, length, packets int, rate float64, silence time.Duration, cut delay.Cut) (Stream, error) {
	m.number++
	out := packet.Stream{
		Run: m.label, ID: m.number, Size: m.config.Plan.Settings.Size, Packets: packets, Rate: rate,
		Ends: packet.Ends{SourceMAC: m.sender.mac, DestMAC: m.entryHop(length).mac, Source: m.source(), Dest: m.dest()},
	}
	in, err := packet.OpenReceiver(packet.ReceiverConfig{
		NetNS: m.sender.NetNS(), Address: m.source(), CPU: -1, Run: m.label, Stream: m.number, Room: out.Room(),
	})
	if err != nil {
		return Stream{}, err
	}
	sent, err := m.sending.Send(ctx, out)
	if err != nil {
		return Stream{}, errors.Join(err, in.Close())
	}
	limit, cancel := context.WithTimeout(ctx, min(patience, 6*silence))
	defer cancel()
	got, err := in.Receive(limit, packets, silence)
	if err := errors.Join(err, in.Close(), context.Cause(ctx)); err != nil {
		return Stream{}, err
	}
	dropped, err := m.echo.Dropped()
	if err != nil {
		return Stream{}, err
	}
	s := Stream{Path: m.path, Length: length, Forwarding: m.forwardingModes(length), Accelerator: m.Accelerator, Sent: sent, Dropped: got.Dropped + dropped - m.dropped}
	m.dropped = dropped
	arrivals := make([]delay.Packet, len(got.Receptions))
	for i, x := range got.Receptions {
		arrivals[i] = delay.Packet{Sequence: x.Sequence, Sent: x.Sent, Received: x.Kernel}
		if x.Kernel == 0 {
			s.Unstamped++
		}
	}
	s.Network = delay.Analyze(packets, arrivals, cut)
	return s, nil
}

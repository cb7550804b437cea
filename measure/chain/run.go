package chain

import (
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
	attempts  = 3                      // at a stream, before it stays without a valid one
	quiet     = 500 * time.Millisecond // without a reply, until those that lack are lost
	patience  = 3 * time.Second        // for all of them
	warmSize  = 20                     // probes that show that a chain answers
	warmQuiet = 50 * time.Millisecond

	defaultWait = 30 * time.Second // for a chain to begin to answer
	bootWait    = 5 * time.Minute  // where its hops are virtual machines
)

// Run measures all that the results do not have yet. A chain that this host
// cannot have is noted in the manifest, with the reason, and the others are
// measured. So is one that fails, whose error is given at the end.
func Run(ctx context.Context, c Config) error {
	r := &running{Config: c, label: c.Label(), excused: map[Path]error{}}
	if err := r.note(); err != nil {
		return err
	}
	for _, v := range c.Plan.visits {
		if r.excused[v.path] != nil {
			continue
		}
		err := r.visit(ctx, v)
		if cause := context.Cause(ctx); cause != nil {
			return errors.Join(err, cause)
		}
		if err != nil {
			r.excused[v.path] = err
			if err := r.note(); err != nil {
				return err
			}
		}
	}
	return r.failure()
}

// A running measurement goes from deployment to deployment.
type running struct {
	Config
	label   uint32 // of probes
	done    int    // streams
	excused map[Path]error
}

// note keeps in the manifest what cannot be measured, and why.
func (r *running) note() error {
	m := r.Results.Manifest()
	m.Unsupported = nil
	for path, err := range r.excused {
		if m.Unsupported == nil {
			m.Unsupported = map[string]string{}
		}
		m.Unsupported[path.String()] = err.Error()
	}
	return r.Results.SaveManifest(m)
}

// failure is what went wrong, but for what this host cannot have; that too when
// it leaves nothing.
func (r *running) failure() error {
	var errs []error
	for _, path := range r.Plan.Paths {
		err := r.excused[path]
		if err != nil && (!vitrine.IsUnsupported(err) || len(r.excused) == len(r.Plan.Paths)) {
			errs = append(errs, fmt.Errorf("%s: %w", path, err))
		}
	}
	return errors.Join(errs...)
}

// visit measures the streams of one deployment that the results lack.
func (r *running) visit(ctx context.Context, v visit) (err error) {
	var left []leg
	for _, l := range v.legs {
		if _, _, done := r.Results.Attempts(l.key(1), attempts); done {
			r.done++
		} else {
			left = append(left, l)
		}
	}
	if len(left) == 0 {
		return nil
	}
	r.Tell(measure.Event{Doing: fmt.Sprintf("deploying %d hops, %s", r.Plan.Settings.most(), v.path), Done: r.done, Of: r.Plan.Streams})
	d, err := deploy(ctx, &r.Config, v, r.label)
	defer func() {
		err = errors.Join(err, d.remove(context.WithoutCancel(ctx)))
	}()
	if err != nil {
		return err
	}
	m := &measurement{deployment: d, running: r}
	for _, l := range left {
		if err := m.leg(ctx, l); err != nil {
			return fmt.Errorf("a chain of %d hops: %w", l.length, err)
		}
	}
	return nil
}

// A measurement is of one deployment.
type measurement struct {
	*deployment
	*running
	number uint16        // of the stream
	held   time.Duration // by the hop with the injection, now
}

// inject has the hop hold frames, or not.
func (m *measurement) inject(ctx context.Context, injected bool) error {
	i := m.Plan.Settings.Inject
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

// leg measures one stream, again where what it gave is not valid.
func (m *measurement) leg(ctx context.Context, l leg) error {
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
	m.done++
	for {
		made, _, done := m.Results.Attempts(l.key(1), attempts)
		if done {
			return nil
		}
		began := time.Now()
		stream, err := m.stream(ctx, l.length, s.Packets, s.Rate, quiet, s.Cut)
		if err != nil {
			return err
		}
		stream.Injected = l.injected
		o, err := stream.outcome(l.key(made + 1))
		if err != nil {
			return err
		}
		o.Overhead = time.Since(began) - o.Duration
		if err := m.Results.Append(o); err != nil {
			return err
		}
		m.Tell(measure.Event{Outcome: &o, Done: m.done, Of: m.Plan.Streams})
	}
}

// outcome is the stream as the run folder keeps it.
func (s Stream) outcome(key vitrine.Key) (vitrine.Outcome, error) {
	n := s.Network
	o := vitrine.Outcome{
		Key: key, Duration: time.Duration(float64(n.Sent) / key.Rate * 1e9), Scheduled: int64(n.Sent), Offered: int64(n.Sent), Succeeded: int64(n.Received),
		Failed:      map[string]int64{"lost": int64(n.Lost)},
		Latency:     vitrine.Latency{P50: n.Delay.P50 / 1e3, P95: n.Delay.P95 / 1e3, P99: n.Delay.P99 / 1e3},
		Accelerator: s.Accelerator, Valid: true,
	}
	switch err := s.Sent.Held(); {
	case err != nil:
		o.Valid, o.Reason = false, err.Error()
	case s.Dropped > 0:
		o.Valid, o.Reason = false, fmt.Sprintf("the receiving socket had no room for %d replies", s.Dropped)
	case n.Duplicates > 0:
		o.Valid, o.Reason = false, fmt.Sprintf("%d replies came twice: something beside the chain forwards", n.Duplicates)
	case n.Received == 0:
		o.Valid, o.Reason = false, "no reply came"
	}
	var err error
	if o.Measured, err = json.Marshal(s); err != nil {
		return o, fmt.Errorf("trial %d: %w", key.Seq, err)
	}
	return o, nil
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

// await returns once the chain answers. Its links may be slow: each try waits for
// longer than the last.
func (m *measurement) await(ctx context.Context, length int) error {
	wait, silence := m.wait(), warmQuiet
	for end := time.Now().Add(wait); ; silence = min(2*silence, quiet) {
		stream, err := m.stream(ctx, length, warmSize, DefaultRate, silence, delay.Cut{})
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
				wait, length, m.entry(length).said())
		}
	}
}

// wait is how long a chain may take to begin to answer.
func (m *measurement) wait() time.Duration {
	switch {
	case m.Wait > 0:
		return m.Wait
	case m.accelerator != "": // machines boot first, all of them at once
		return bootWait
	}
	return defaultWait
}

// stream sends probes into the chain and takes what comes back.
func (m *measurement) stream(ctx context.Context, length, packets int, rate float64, silence time.Duration, cut delay.Cut) (Stream, error) {
	m.number++
	out := packet.Stream{
		Run: m.run, ID: m.number, Size: m.Plan.Settings.Size, Packets: packets, Rate: rate,
		Ends: packet.Ends{SourceMAC: m.sender.mac, DestMAC: m.entry(length).mac, Source: m.source(), Dest: m.dest()},
	}
	in, err := packet.OpenReceiver(packet.ReceiverConfig{
		NetNS: m.sender.instance.NetNS(), Address: m.source(), CPU: -1, Run: m.run, Stream: m.number, Room: out.Room(),
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
	arrivals := make([]delay.Packet, len(got.Receptions))
	for i, x := range got.Receptions {
		arrivals[i] = delay.Packet{Sequence: x.Sequence, Sent: x.Sent, Received: x.Kernel}
	}
	return Stream{
		Path: m.path, Length: length, Forwarding: m.forwarding(length), Accelerator: m.accelerator, Sent: sent, Dropped: got.Dropped, Network: delay.Analyze(packets, arrivals, cut),
	}, nil
}

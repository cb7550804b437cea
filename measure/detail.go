package measure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"vitrine"
	"vitrine/measure/cpu"
	"vitrine/measure/delay"
	"vitrine/measure/packet"
	"vitrine/substrate"
	"vitrine/testbed"
)

// A sentStream holds the sender's records of one stream. For efficiency, the stream is
// sent twice beside a soaker, and BPF counts the second time.
type sentStream struct {
	record  *packet.Record
	ports   []PortFacts    // during the stream
	counted *packet.Record // of the second stream; nil: BPF cannot count here, or the metric is not efficiency
	why     error          // why BPF cannot count
}

// countedBit is the bit in a stream's number that marks the stream counted by BPF.
const countedBit = 1 << 15

// measureStream sends a stream. For efficiency it also measures the CPU time.
func (s *site) measureStream(ctx context.Context, run uint32, x stream) (sentStream, error) {
	s.receiveOn(x.metric == Efficiency)
	out := sentStream{ports: s.portFacts()}
	if x.metric != Efficiency {
		var err error
		out.record, err = s.send(ctx, run, x)
		return out, err
	}
	file, err := s.startSoaker(ctx)
	if err != nil {
		return out, err
	}
	if out.record, err = s.send(ctx, run, x, "--soaked", file); err != nil {
		return out, errors.Join(err, s.stopSoaker(ctx))
	}
	x.id |= countedBit
	out.counted, out.why = s.send(ctx, run, x, "--soaked", file, "--count")
	err = s.stopSoaker(ctx)
	if ctx.Err() != nil {
		err = errors.Join(context.Cause(ctx), err)
	}
	return out, err
}

// startSoaker starts a soaker on the receiver's CPU and returns the file of its progress. The file is
// in the sender's folder, because a sender in a container sees no other folder of the host.
func (s *site) startSoaker(ctx context.Context) (string, error) {
	const name = "soaker-1"
	if s.soaker == nil {
		placed, err := s.Place(ctx, s.dir, testbed.Spec{OnHost: true, Unwired: true, Spec: substrate.Spec{
			Name: name, Component: name, CPUs: s.config.CPUs.Function[:1], Idle: true,
		}})
		if err != nil {
			return "", err
		}
		s.soaker = placed.Instances[0]
	}
	file := filepath.Join(s.sender.Scratch(), "soaked")
	err := s.soaker.Start(ctx, vitrine.Command{Args: []string{s.config.Testbed.Self, "reference", "soak", "--file", file}, Env: environment()})
	if err != nil {
		return "", err
	}
	return file, awaitReady(ctx, s.soaker)
}

func (s *site) stopSoaker(ctx context.Context) error {
	return s.soaker.Stop(context.WithoutCancel(ctx), time.Second)
}

// readReceived parses a receiver's output and groups its receptions by stream.
func readReceived(text []byte) (*received, error) {
	record, err := packet.ReadRecord(text)
	if err != nil {
		return nil, err
	}
	r := &received{Record: record, streams: map[uint16][]packet.Reception{}}
	for _, x := range record.Receptions {
		r.streams[x.Stream] = append(r.streams[x.Stream], x)
	}
	return r, nil
}

type received struct {
	*packet.Record
	streams map[uint16][]packet.Reception
}

// newDetail returns the facts about a stream that need no packets.
func newDetail(s *site, x stream, out sentStream) Detail {
	d := Detail{Metric: x.metric, Way: x.way, Size: x.size, Fabric: x.where.Fabric, Accelerator: s.Accelerator, Ports: out.ports}
	if sent := out.record.Sent; sent != nil {
		d.Sent = *sent
	}
	return d
}

// roundTripDetail returns the Detail of a stream whose packets came back to the sender. The echo
// reports only its drops and its buffer.
func roundTripDetail(s *site, x stream, out sentStream, echo *received) Detail {
	d, record := newDetail(s, x, out), out.record
	d.Dropped, d.Room = record.Dropped+echo.Dropped, echo.Room
	d.Foreign, d.Drift, d.OneClock = record.Foreign, record.Drift, true
	d.analyze(x, s.config.Plan.Settings.Cut, record.Receptions)
	return d
}

// oneWayDetail returns the Detail of a one-way stream that was received as got.
func oneWayDetail(s *site, x stream, out sentStream, got *received) Detail {
	d := newDetail(s, x, out)
	d.Dropped, d.Foreign, d.Drift, d.Room = got.Dropped, got.Foreign, got.Drift, got.Room
	if d.OneClock = out.record.Boot != "" && out.record.Boot == got.Boot; d.OneClock {
		d.Drift = d.Sent.Drift // the receiver's is over all its streams
	}
	list := got.streams[x.id]
	d.analyze(x, s.config.Plan.Settings.Cut, list)
	late := make([]delay.Packet, len(list))
	for i, p := range list {
		late[i] = delay.Packet{Sequence: p.Sequence, Sent: p.Sent, Received: p.Read}
	}
	if !d.OneClock && len(late) > 0 {
		late = delay.Unskewed(late, d.Skew/1e6)
	}
	application := delay.Analyze(x.packets, late, s.config.Plan.Settings.Cut).Lateness
	d.Application = &application
	if x.metric == Efficiency {
		d.CPU = perPacket(out, s.cpus(), s.guest)
	}
	return d
}

// kernelStamps says that the kernel stamped every packet.
const kernelStamps = "kernel"

// analyze analyses the packets by the kernel's stamps. If the kernel did not stamp every packet,
// it uses the program's stamps.
func (d *Detail) analyze(x stream, cut delay.Cut, list []packet.Reception) {
	arrivals := make([]delay.Packet, len(list))
	d.Stamps = kernelStamps
	for i, p := range list {
		arrivals[i] = delay.Packet{Sequence: p.Sequence, Sent: p.Sent, Received: p.Kernel}
		if p.Kernel == 0 {
			d.Stamps = "program, because the kernel gave none"
		}
		d.Hardware = d.Hardware || p.Hardware != 0
	}
	if d.Stamps != kernelStamps {
		for i, p := range list {
			arrivals[i].Received = p.Read
		}
	}
	if !d.OneClock && len(arrivals) > 0 {
		skew := delay.Skew(arrivals)
		d.Skew, arrivals = skew*1e6, delay.Unskewed(arrivals, skew)
	}
	d.Network = delay.Analyze(x.packets, arrivals, cut)
}

// inGuest is why the CPU time of a virtual machine has no split. KVM runs a guest within a system
// call of QEMU, and without KVM a guest is code of QEMU.
const inGuest = "BPF counts all work in a virtual machine as QEMU's: as kernel time with KVM, as user time if emulated"

// perPacket divides the CPU time by the packets, both the soaker's and BPF's. guest says that the
// receiver has its own kernel.
func perPacket(out sentStream, cpus []int, guest bool) *cpu.PerPacket {
	if out.record.Sent.Packets == 0 {
		return &cpu.PerPacket{Why: "no packet was sent"}
	}
	total, background := soakedTime(out.record)
	var split *cpu.Split
	why := ""
	switch {
	case out.why != nil:
		why = out.why.Error()
	case out.counted.Sent.Held() != nil:
		why = "while BPF counted, " + out.counted.Sent.Held().Error()
	default:
		split = countedTime(out.counted, cpus)
	}
	p := cpu.Judge(total, background, split, why)
	if guest && p.Split != nil {
		p.Split, p.Why = nil, inGuest
	}
	return &p
}

// soakedTime returns two figures in ns: the CPU time per packet that neither the sender's waiting
// loop nor the soaker got, minus the background, and the background.
func soakedTime(r *packet.Record) (total, background float64) {
	n := float64(r.Sent.Packets)
	idle := float64(r.Background.Busy+r.Background.Missed) / float64(r.Background.Span)
	background = idle * float64(r.Used.Span) / n
	return float64(r.Used.Busy+r.Used.Missed)/n - background, background
}

// countedTime returns the CPU time per packet by BPF, minus the background; ns.
func countedTime(r *packet.Record, cpus []int) *cpu.Split {
	n := float64(r.Sent.Packets)
	sum := func(u *packet.Usage) (t cpu.Reading) {
		for _, i := range cpus {
			if i < len(u.Counted) {
				c := u.Counted[i]
				t.User, t.Kernel, t.Interrupt = t.User+c.User, t.Kernel+c.Kernel, t.Interrupt+c.Interrupt
			}
		}
		return t
	}
	used, idle := sum(r.Used), sum(r.Background)
	share := float64(r.Used.Span) / float64(r.Background.Span)
	of := func(used, idle int64) float64 { return max((float64(used)-float64(idle)*share)/n, 0) }
	return &cpu.Split{User: of(used.User, idle.User), Kernel: of(used.Kernel, idle.Kernel), Interrupt: of(used.Interrupt, idle.Interrupt)}
}

// cpus returns the CPUs whose time is measured: the sender's and the receiver's.
func (s *site) cpus() []int { return []int{s.config.CPUs.Generator[0], s.config.CPUs.Function[0]} }

func (s *site) portFacts() []PortFacts {
	if s.sender == s.receiver {
		return []PortFacts{s.sender.facts}
	}
	return []PortFacts{s.sender.facts, s.receiver.facts}
}

// outcome returns the outcome of the stream as a trial. Its window is the packets within the cut.
func outcome(x stream, key vitrine.Key, d Detail) vitrine.Outcome {
	o := vitrine.Outcome{
		Key: key, Duration: stream{packets: d.Network.Sent, rate: x.rate}.Span(), Scheduled: int64(d.Network.Sent),
		// If the kernel refused packets, the trial is invalid, and how many of those were in the window is not known.
		Offered:   int64(min(d.Network.Sent, d.Sent.Packets)),
		Succeeded: int64(d.Network.Received), Failed: map[string]int64{}, Accelerator: d.Accelerator, Measured: marshal(d),
	}
	if d.Network.Lost > 0 {
		o.Failed["lost"] = int64(d.Network.Lost)
	}
	if d.OneClock {
		o.Latency = vitrine.Latency{P50: d.Network.Delay.P50 / 1e3, P95: d.Network.Delay.P95 / 1e3, P99: d.Network.Delay.P99 / 1e3}
	}
	if err := d.valid(); err != nil {
		o.Reason = err.Error()
		return o
	}
	o.Valid = true
	o.Reason = fmt.Sprintf("99%% of packets sent within %s µs of their time", strconv.FormatFloat(float64(d.Sent.Schedule.P99)/1e3, 'f', 1, 64))
	return o
}

// receiverStep is the largest drift of a receiver's time of day that is not a step of it. A receiver
// with a kernel of its own does not report the error of its drift, and a machine's may be large.
const receiverStep = time.Millisecond

// valid returns an error if the stream shows nothing about the network.
func (d *Detail) valid() error {
	if err := cmp.Or(d.Sent.Held(), d.Sent.Steady()); err != nil {
		return err
	}
	switch {
	case !d.OneClock && time.Duration(d.Drift).Abs() > receiverStep:
		return fmt.Errorf("the receiver's time of day was set by %s during its streams, and its kernel stamps packets by it", time.Duration(d.Drift).Round(time.Microsecond))
	case d.Network.Received == 0:
		return errors.New("no packet arrived")
	case d.Way == RoundTrip && d.Stamps != kernelStamps: // the program reads replies when it has sent all packets
		return errors.New("the kernel did not stamp every reply")
	case d.Dropped > 0 && d.Network.Lost > 0:
		return fmt.Errorf("the receiving program or the echo did not keep up: the kernel dropped %d packets because its socket's buffer was full; choose a lower --rate", d.Dropped)
	case d.CPU != nil && !(d.CPU.Total > 0):
		return fmt.Errorf("the packets took %.0f ns of CPU time each, minus the background: the host was busy with other work", d.CPU.Total)
	}
	return nil
}

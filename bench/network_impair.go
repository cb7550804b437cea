package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"time"

	"vitrine/fabric"
	"vitrine/fabric/bridge"
	"vitrine/fabric/impair"
	"vitrine/internal/netns"
	"vitrine/internal/runstate"
	"vitrine/measure/packet"
	"vitrine/testbed"
)

const (
	impairDelay   = 5 * time.Millisecond
	impairRate    = 50_000 // packets a second
	impairPackets = 100_000
	impairHead    = 1000 // packets that do not count, because they warm up the path
)

// networkImpair measures the error of the delay that the link emulator adds. The
// error is the difference between the added and the requested delay, against the
// median delay of the same path without the emulator. The row has the 99th
// percentile over all packets of a stream. The emulator has its own core.
func networkImpair(ctx context.Context, progress io.Writer) ([]Row, error) {
	cpus, err := testbed.ShareCPUs(nil, nil)
	if err != nil {
		return nil, err
	}
	asked := impair.Config{
		Links: map[string]impair.Link{"generator": {Delay: impairDelay, Way: impair.Out}},
		By:    impair.Emulator, CPU: &cpus.Function[0], Command: []string{self(), impair.Verb, strconv.Itoa(os.Getpid())},
	}
	var p Pairs
	for round := range minRounds {
		plain, _, err := impairedDelays(ctx, impair.Config{}, cpus.Generator[0])
		if err != nil {
			return nil, fmt.Errorf("round %d: without delay: %w", round+1, err)
		}
		impaired, made, err := impairedDelays(ctx, asked, cpus.Generator[0])
		if err != nil {
			return nil, fmt.Errorf("round %d: %w", round+1, err)
		}
		base := median(plain)
		for i, d := range impaired {
			impaired[i] = math.Abs(d - base - float64(impairDelay.Nanoseconds()))
		}
		slices.Sort(impaired)
		at := func(share float64) float64 { return percentileOfAll(impaired, impairPackets-impairHead, share) / 1e3 }
		fmt.Fprintf(progress, "  round %d: %.0f µs without, error of 5 ms added: median %.1f µs, p90 %.1f, p99 %.1f, p99.9 %.1f; missed %d; the emulator says p99 %s\n",
			round+1, base/1e3, at(0.5), at(0.9), at(0.99), at(0.999), made.Missed, made.Lateness.P99)
		if math.IsInf(at(0.99), 1) {
			return nil, fmt.Errorf("round %d: %d of %d packets arrived: want 99%% of them; give the bench a host with two idle CPUs",
				round+1, len(impaired), impairPackets-impairHead)
		}
		p.Ours, p.Theirs = append(p.Ours, at(0.99)), append(p.Theirs, float64(impairDelay.Microseconds()))
	}
	row, err := p.row("network/impair", "us", "the delay asked for, 5 ms, at 50,000 packets/s; ours is the 99th percentile of its error", "<= 0.05")
	return []Row{row}, err
}

// percentileOfAll returns the value that a share of all packets does not exceed. sorted has the values of
// the packets that arrived. The others count as infinite: an emulator that drops late packets must not
// look punctual.
func percentileOfAll(sorted []float64, all int, share float64) float64 {
	i := int(share * float64(all-1))
	if i >= len(sorted) {
		return math.Inf(1)
	}
	return sorted[i]
}

// impairedDelays returns the delays, in ns, of a stream between two instances on
// a bridge, and the emulator's statistics of the sender's link.
func impairedDelays(ctx context.Context, config impair.Config, cpu int) (delays []float64, made impair.Made, err error) {
	run, err := runstate.New(runstate.DefaultRoot())
	if err != nil {
		return nil, made, err
	}
	defer func() { err = errors.Join(err, run.Close()) }()
	b, err := bridge.New(bridge.Config{Run: run})
	if err != nil {
		return nil, made, err
	}
	config.Run = run
	f, err := impair.Wrap(ctx, b, config)
	if err != nil {
		return nil, made, err
	}
	defer func() { err = errors.Join(err, f.Close(ctx)) }()
	var ends packet.Ends
	var places [2]string
	for i, name := range []string{"generator", "sink-1"} {
		place, failed := netns.Create(runstate.Name(run.ID, name)) // not err, which the defer below sets
		if failed != nil {
			return nil, made, failed
		}
		defer func() { err = errors.Join(err, netns.Delete(runstate.Name(run.ID, name))) }()
		end, err := f.Attach(ctx, fabric.Port{Instance: name, NetNS: place})
		if err != nil {
			return nil, made, err
		}
		err = netns.Do(place, func() error {
			link, err := net.InterfaceByName(end.Interface)
			if err == nil {
				ends.DestMAC = link.HardwareAddr // the last iteration sets the receiver's address
			}
			return err
		})
		if err != nil {
			return nil, made, err
		}
		places[i], ends.Source, ends.Dest = place, ends.Dest, netip.AddrPortFrom(end.Addr, 7000)
	}
	if delays, err = streamDelays(ctx, places, ends, cpu); err != nil {
		return nil, made, err
	}
	all, err := f.Made(ctx)
	if len(all) > 0 {
		made = all[0]
	}
	return delays, made, err
}

// streamDelays sends a stream and returns the delays of its packets, in ns.
func streamDelays(ctx context.Context, places [2]string, ends packet.Ends, cpu int) (delays []float64, err error) {
	r, err := packet.OpenReceiver(packet.ReceiverConfig{NetNS: places[1], Address: ends.Dest, CPU: -1, Run: 1})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	s, err := packet.OpenSender(packet.SenderConfig{NetNS: places[0], Interface: "eth0", CPU: cpu})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	sent, err := s.Send(ctx, packet.Stream{Run: 1, ID: 1, Ends: ends, Size: 64, Packets: impairPackets, Rate: impairRate})
	if err == nil {
		err = sent.Held()
	}
	if err != nil {
		return nil, err
	}
	got, err := r.Receive(ctx, impairPackets, time.Second)
	if err != nil {
		return nil, err
	}
	for _, p := range got.Receptions {
		if p.Sequence >= impairHead {
			delays = append(delays, float64(p.Kernel-p.Sent))
		}
	}
	if len(delays) < impairPackets/2 {
		return nil, fmt.Errorf("%d of %d packets arrived", len(got.Receptions), impairPackets)
	}
	return delays, nil
}

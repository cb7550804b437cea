package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"vitrine/measure/packet"
)

const (
	networkRounds  = 9
	networkSize    = 64        // frame size, bytes
	bulkPackets    = 2_000_000 // of one measurement
	replayFrames   = 1000      // in the replayed capture
	replayLoops    = 400
	scheduledSpan  = 500 * time.Millisecond // duration of one rate
	scheduledStep  = 0.99                   // factor from a rate that was not held to the next rate
	scheduledSteps = 80
)

// networkBulk compares how many 64-byte frames per second one core sends over a
// veth, counted at the far end. It compares our bulk mode with tcpreplay at top
// speed. The far end drops all frames by XDP, or its stack receives and drops
// them.
func networkBulk(ctx context.Context, progress io.Writer) (rows []Row, err error) {
	peers := []struct{ name, far, aim string }{
		{"network/bulk", "the far end drops by XDP", ">= 3"},
		// Here the far end uses most of the time.
		{"network/bulk/stack", "the far end's stack drops", ""},
	}
	for i, peer := range peers {
		fmt.Fprintf(progress, "  %s\n", peer.far)
		row, err := overCable(ctx, i == 0, func(c *cable, replay side) (Row, error) {
			bulk, err := packet.OpenBulk(packet.SenderConfig{NetNS: c.near.netns, Interface: "eth0", CPU: c.core})
			if err != nil {
				return Row{}, err
			}
			ours := func(ctx context.Context) (float64, error) { return c.bulk(ctx, bulk) }
			pairs, err := interleave(ctx, networkRounds, ours, replay, progress)
			if err := errors.Join(err, bulk.Close()); err != nil {
				return Row{}, err
			}
			return pairs.row(peer.name, "packets/s", "tcpreplay --topspeed --preload-pcap on the same core; "+peer.far, peer.aim)
		})
		if err != nil {
			return rows, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// networkScheduled compares our senders with tcpreplay at top speed. The figure of a sender is the
// highest rate at which every packet is on schedule. One sender schedules in the kernel, the other
// makes a system call per packet.
func networkScheduled(ctx context.Context, progress io.Writer) (rows []Row, err error) {
	_, err = overCable(ctx, true, func(c *cable, replay side) (_ Row, err error) {
		config := packet.SenderConfig{NetNS: c.near.netns, Interface: "eth0", CPU: c.core}
		bulk, err := packet.OpenBulk(config)
		if err != nil {
			return Row{}, err
		}
		defer func() { err = errors.Join(err, bulk.Close()) }()
		sender, err := packet.OpenSender(config)
		if err != nil {
			return Row{}, err
		}
		defer func() { err = errors.Join(err, sender.Close()) }()
		rates, err := runRounds(ctx, networkRounds, []side{c.highestHeldRate(bulk.Send), c.highestHeldRate(sender.Send), replay}, progress)
		if err != nil {
			return Row{}, err
		}
		const against = "tcpreplay --topspeed --preload-pcap on the same core; the far end drops by XDP"
		row, err := Pairs{rates[0], rates[2]}.row("network/scheduled", "packets/s", "in the kernel, against "+against, ">= 1")
		if err != nil {
			return Row{}, err
		}
		rows = append(rows, row)
		row, err = Pairs{rates[1], rates[2]}.row("network/scheduled/socket", "packets/s", "a system call for each, against "+against, ">= 1")
		rows = append(rows, row)
		return Row{}, err
	})
	return rows, err
}

// overCable creates a cable and a side that measures tcpreplay over it, and calls use. drop selects
// whether the far end drops frames by XDP or in its stack.
func overCable(ctx context.Context, drop bool, use func(c *cable, replay side) (Row, error)) (row Row, err error) {
	c, err := newCable(ctx)
	defer func() { err = errors.Join(err, c.close()) }()
	if err != nil {
		return row, err
	}
	if drop {
		err = c.dropFrames()
	} else {
		err = c.receiveXDP()
	}
	if err != nil {
		return row, err
	}
	replay, err := c.replay()
	if err != nil {
		return row, err
	}
	return use(c, replay)
}

func (c *cable) stream(packets int, rate float64) packet.Stream {
	return packet.Stream{Run: 1, ID: 1, Ends: c.ends(), Size: networkSize, Packets: packets, Rate: rate}
}

func (c *cable) bulk(ctx context.Context, b *packet.Bulk) (float64, error) {
	return c.arrivals(func() (int, time.Duration, error) {
		sent, err := b.Send(ctx, c.stream(bulkPackets, 0))
		return sent.Packets, time.Duration(sent.Last - sent.First), err
	})
}

// highestHeldRate returns a side that measures the highest rate at which a sender stays on
// schedule. It first asks for too much to find the sender's top rate, and then goes down from
// there.
func (c *cable) highestHeldRate(send func(context.Context, packet.Stream) (packet.Sent, error)) side {
	const tooMuch = 1e8
	return func(ctx context.Context) (float64, error) {
		sent, err := send(ctx, c.stream(replayFrames*100, tooMuch))
		if err != nil {
			return 0, err
		}
		var missed error
		for rate, step := sent.Rate, 0; step < scheduledSteps; rate, step = rate*scheduledStep, step+1 {
			arrived, err := c.arrivals(func() (int, time.Duration, error) {
				sent, err := send(ctx, c.stream(int(rate*scheduledSpan.Seconds()), rate))
				missed = sent.Held()
				return sent.Packets, time.Duration(sent.Last - sent.First), err
			})
			if err != nil || missed == nil {
				return arrived, err
			}
		}
		return 0, fmt.Errorf("no rate was held, down to %.0f packets a second: %w", sent.Rate*math.Pow(scheduledStep, scheduledSteps), missed)
	}
}

// replay returns a side that measures tcpreplay: it sends the same frame from
// the same core.
func (c *cable) replay() (side, error) {
	if err := programs("tcpreplay"); err != nil {
		return nil, err
	}
	file := filepath.Join(c.dir, "frames.pcap")
	if err := c.capture(file); err != nil {
		return nil, err
	}
	return func(ctx context.Context) (float64, error) {
		return c.arrivals(func() (int, time.Duration, error) {
			cmd := exec.CommandContext(ctx, "tcpreplay", "--topspeed", "--preload-pcap", "--loop="+strconv.Itoa(replayLoops), "--intf1=eth0", file)
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := c.start(cmd); err != nil {
				return 0, 0, err
			}
			if err := cmd.Wait(); err != nil {
				return 0, 0, fmt.Errorf("%w: %s", err, out.Bytes())
			}
			return readReplay(out.Bytes())
		})
	}, nil
}

// capture writes a pcap file (draft-ietf-opsawg-pcap) with the frames for
// tcpreplay, one microsecond apart.
func (c *cable) capture(file string) error {
	frame := make([]byte, networkSize)
	if err := packet.Build(frame, c.ends()); err != nil {
		return err
	}
	b := binary.LittleEndian.AppendUint32(nil, 0xa1b2c3d4)
	b = append(b, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, 65535)
	b = binary.LittleEndian.AppendUint32(b, 1) // Ethernet
	for i := range uint32(replayFrames) {
		for _, n := range []uint32{0, i, networkSize, networkSize} {
			b = binary.LittleEndian.AppendUint32(b, n)
		}
		b = append(b, frame...)
	}
	return os.WriteFile(file, b, 0o644)
}

var (
	replaySent = regexp.MustCompile(`Actual: (\d+) packets`)
	replayRate = regexp.MustCompile(`([\d.]+) pps`)
)

// readReplay returns the number of packets and the time that tcpreplay reports.
func readReplay(out []byte) (packets int, took time.Duration, err error) {
	sent, rate := replaySent.FindSubmatch(out), replayRate.FindSubmatch(out)
	if sent == nil || rate == nil {
		return 0, 0, fmt.Errorf("tcpreplay printed %q", out)
	}
	packets, err = strconv.Atoi(string(sent[1]))
	if err != nil {
		return 0, 0, fmt.Errorf("tcpreplay printed %q: %w", out, err)
	}
	pps, err := strconv.ParseFloat(string(rate[1]), 64)
	if err != nil || pps <= 0 {
		return 0, 0, fmt.Errorf("tcpreplay printed %q: %w", out, err)
	}
	return packets, time.Duration(float64(packets) / pps * float64(time.Second)), nil
}

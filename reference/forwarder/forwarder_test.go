package forwarder

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"vitrine"
)

var nextHop = net.HardwareAddr{0x02, 0, 0, 0, 0, 0x99}

// frame returns a frame to that address: size bytes, type IPv4, with a number.
func frame(to, from [6]byte, size int, number uint32) []byte {
	f := make([]byte, size)
	copy(f, to[:])
	copy(f[6:], from[:])
	f[12], f[13] = 0x08, 0x00
	for i := headerSize; i < size; i++ {
		f[i] = byte(i)
	}
	binary.BigEndian.PutUint32(f[headerSize:], number)
	return f
}

func TestRewritesAndSendsOn(t *testing.T) {
	for _, tt := range []struct {
		name string
		args []string
		turn bool // send out of the incoming interface
		gro  bool // generic receive offload at the far ends
		mode string
	}{
		{"packet", []string{"--mode", "packet"}, false, false, "packet: in"},
		{"packet back", []string{"--mode", "packet"}, true, false, "packet: in"},
		{"xdp to a deaf end", []string{"--mode", "xdp"}, false, false, "xdp, generic"},
		{"xdp back to a deaf end", []string{"--mode", "xdp"}, true, false, "xdp, generic"},
		{"xdp", []string{"--mode", "xdp"}, false, true, "xdp, native"},
		{"xdp back", []string{"--mode", "xdp"}, true, true, "xdp, native"},
		{"xdp generic", []string{"--mode", "xdp", "--attach", "generic"}, false, true, "xdp, generic"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before, at, after := namespace(t), namespace(t), namespace(t)
			pair(t, before, "far", at, "in", 1500)
			pair(t, after, "far", at, "out", 1500)
			if tt.gro {
				receiveOffload(t, before, "far")
				receiveOffload(t, after, "far")
			}
			from, to, own, source := openPort(t, before, "far"), openPort(t, after, "far"), openPort(t, at, "in").addr, openPort(t, at, "out").addr
			args := append(tt.args, "--in", "in", "--next-mac", nextHop.String())
			if tt.turn {
				to, source = from, own
			} else {
				args = append(args, "--out", "out")
			}
			f := start(t, at, args...)
			if !strings.Contains(f.ready, tt.mode) {
				t.Errorf("got start message %q, want %q", f.ready, tt.mode)
			}
			to.drain()                      // discard probes
			const frames, window = 4000, 32 // frames sent before the first must be back
			total := uint64(0)
			size := func(i int) int { return 60 + i*7%(1514-60+1) }
			for i := range frames + window {
				if i < frames {
					from.send(frame(own, from.addr, size(i), uint32(i)))
					total += uint64(size(i))
				}
				if i < window {
					continue
				}
				want := frame([6]byte(nextHop), source, size(i-window), uint32(i-window))
				if got := to.receive(); !bytes.Equal(got, want) {
					t.Fatalf("frame %d: %x, want %x", i-window, got, want)
				}
			}
			r := f.stop()
			if r.Forwarded != frames || r.ForwardedBytes != total || r.Lost+r.Refused+r.TooLong > 0 {
				t.Errorf("got report %+v, want %d frames, %d bytes", r, frames, total)
			}
			from.send(frame(own, from.addr, 60, 1))
			if !to.silent() {
				t.Error("the forwarder sends frames after it ended")
			}
		})
	}
}

// TestLeavesTheRestAlone checks that frames other than IP frames for the
// forwarder are counted and not forwarded.
func TestLeavesTheRestAlone(t *testing.T) {
	for _, mode := range []string{Packet, XDP} {
		t.Run(mode, func(t *testing.T) {
			before, at := namespace(t), namespace(t)
			pair(t, before, "far", at, "in", 1500)
			from, own := openPort(t, before, "far"), openPort(t, at, "in").addr
			f := start(t, at, "--in", "in", "--mode", mode, "--next-mac", nextHop.String())
			from.drain() // discard probes
			tagged := func(f []byte, tags ...byte) []byte {
				return append(append(append([]byte(nil), f[:12]...), tags...), f[12:]...)
			}
			arp := frame(own, from.addr, 60, 0)
			arp[12], arp[13] = 0x08, 0x06
			cut := tagged(frame(own, from.addr, 18, 0), 0x81, 0x00, 0x00, 0x05)[:16]
			from.send(frame([6]byte{255, 255, 255, 255, 255, 255}, from.addr, 60, 0)) // not ours
			from.send(frame([6]byte{2, 2, 2, 2, 2, 2}, from.addr, 60, 0))             // not ours
			from.send(arp)                                                            // not IP
			from.send(tagged(arp, 0x81, 0x00, 0x00, 0x05))                            // not IP
			from.send(cut)
			last := frame(own, from.addr, 60, 7)
			last[12], last[13] = 0x86, 0xdd // IPv6
			for _, sent := range [][]byte{
				frame(own, from.addr, 18, 1),
				tagged(frame(own, from.addr, 60, 2), 0x81, 0x00, 0x00, 0x05),
				tagged(frame(own, from.addr, 1514, 3), 0x81, 0x00, 0x00, 0x05), // a frame of the MTU with a tag
				tagged(frame(own, from.addr, 60, 4), 0x88, 0xa8, 0x00, 0x07, 0x81, 0x00, 0x00, 0x05),
				last,
			} {
				from.send(sent)
				want := append([]byte(nil), sent...)
				copy(want, nextHop)
				copy(want[6:], own[:])
				if got := from.receive(); !bytes.Equal(got, want) {
					t.Errorf("got frame\n%x, want\n%x", got, want)
				}
			}
			if !from.silent() {
				t.Error("another frame came back")
			}
			r := f.stop()
			if r.Forwarded != 5 || r.NotOurs != 2 || r.NotIP != 2 || r.Received != 10-uint64(dropped(r)) {
				t.Errorf("got report %+v", r)
			}
		})
	}
}

// dropped returns 1 if the kernel itself dropped the frame that ends inside its
// tag, before a packet socket saw it.
func dropped(r Report) int { return 1 - int(r.Short) }

func TestTooLongIsCounted(t *testing.T) {
	before, at, after := namespace(t), namespace(t), namespace(t)
	pair(t, before, "far", at, "in", 1500)
	pair(t, after, "far", at, "out", 1000)
	from, to, own := openPort(t, before, "far"), openPort(t, after, "far"), openPort(t, at, "in").addr
	f := start(t, at, "--in", "in", "--out", "out", "--next-mac", nextHop.String())
	from.send(frame(own, from.addr, 1514, 1))
	from.send(frame(own, from.addr, 1014, 2))
	if got := to.receive(); len(got) != 1014 {
		t.Errorf("got a frame of %d bytes, want 1014", len(got))
	}
	if r := f.stop(); r.Forwarded != 1 || r.TooLong != 1 {
		t.Errorf("got report %+v", r)
	}
}

// TestDelayHolds checks that a held frame is never early.
func TestDelayHolds(t *testing.T) {
	for mode, delay := range map[string]time.Duration{Packet: 5 * time.Millisecond, XDP: 500 * time.Microsecond} {
		t.Run(mode, func(t *testing.T) {
			before, at := namespace(t), namespace(t)
			pair(t, before, "far", at, "in", 1500)
			from, own := openPort(t, before, "far"), openPort(t, at, "in").addr
			f := start(t, at, "--in", "in", "--mode", mode, "--delay", delay.String(), "--next-mac", nextHop.String())
			from.drain() // discard probes
			for i := range 20 {
				sent := time.Now()
				from.send(frame(own, from.addr, 60, uint32(i)))
				got := from.receive()
				if took := time.Since(sent); took < delay || !bytes.HasPrefix(got, nextHop) {
					t.Fatalf("frame %d: got %x after %s", i, got, took)
				}
			}
			if r := f.stop(); r.Forwarded != 20 {
				t.Errorf("got report %+v", r)
			}
		})
	}
}

// TestInterfaceGoesAway removes the interface while the forwarder waits for
// frames.
func TestInterfaceGoesAway(t *testing.T) {
	before, at := namespace(t), namespace(t)
	pair(t, before, "far", at, "in", 1500)
	f := start(t, at, "--in", "in", "--next-mac", nextHop.String())
	remove(t, before, "far")
	if err := <-f.done; err == nil {
		t.Error("the forwarder ended without an error")
	}
}

func TestBadInput(t *testing.T) {
	valid := "--in lo --next-mac " + nextHop.String()
	for args, want := range map[string]string{
		"":                       "--in: no interface",
		"--in lo":                "--next-mac",
		"--in lo --next-mac 02:": "--next-mac",
		"--in lo --next-mac 02:00:00:00:00:00:00:01": "--next-mac",
		"--in nosuch --next-mac 02:00:00:00:00:01":   "no interface nosuch",
		valid:                             "lo has no Ethernet address",
		valid + " more":                   "more",
		valid + " --mode fast":            "--mode",
		valid + " --delay -1us":           "--delay",
		valid + " --mode xdp --delay 2ms": "--delay",
		valid + " --cpu -2":               "--cpu",
		valid + " --cpu 4000":             "--cpu",
		valid + " --attach x":             "--attach",
		"--nosuch":                        "--nosuch",
	} {
		ctx, end := context.WithCancel(context.Background())
		end()
		err := Run(ctx, strings.Fields(args), io.Discard, io.Discard)
		if !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want a bad input about %s", args, err, want)
		}
	}
}

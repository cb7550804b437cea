package impair

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"io"
	"math"
	"net"
	"net/netip"
	"testing"
	"time"

	"vitrine/fabric"
	"vitrine/fabric/fabrictest"
	"vitrine/internal/hosttest"
	"vitrine/internal/netns"
	"vitrine/measure/delay"
	"vitrine/measure/packet"
)

// A path leads from the generator to sprout-1 over an impaired bridge.
type path struct {
	fabric   *Fabric
	by       string
	from, to string // namespaces
	ends     packet.Ends
}

// newPath impairs the generator's link with the emulator.
func newPath(t *testing.T, l Link) path { return newPathBy(t, l, Emulator) }

func newPathBy(t *testing.T, l Link, by string) path {
	t.Helper()
	run := fabrictest.NewRun(t, t.TempDir()+"/runs")
	f, err := onBridge(run, Config{Links: map[string]Link{"generator": l}, By: by, Seed: 1})
	hosttest.Need(t, err)
	hosttest.AtEnd(t, func() error { return f.Close(t.Context()) })
	p := path{fabric: f, by: by}
	attach := func(instance string, port uint16) (string, netip.AddrPort) {
		place := fabrictest.Place(t, run.ID, instance)
		end, err := f.Attach(t.Context(), fabric.Port{Instance: instance, NetNS: place})
		if err != nil {
			t.Fatal(err)
		}
		return place, netip.AddrPortFrom(end.Addr, port)
	}
	p.from, p.ends.Source = attach("generator", 7001)
	p.to, p.ends.Dest = attach("sprout-1", 7002)
	err = netns.Do(p.to, func() error {
		link, err := net.InterfaceByName("eth0")
		if err == nil {
			p.ends.DestMAC = link.HardwareAddr
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// stream sends frames of 1000 bytes along the path. It returns the receiver's report, the arrivals,
// and the counts of netem or the emulator.
func (p path) stream(t *testing.T, packets int, rate float64) (delay.Report, []delay.Packet, Made) {
	t.Helper()
	r, err := packet.OpenReceiver(packet.ReceiverConfig{NetNS: p.to, Address: p.ends.Dest, CPU: -1, Run: 5})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s, err := packet.OpenSender(packet.SenderConfig{NetNS: p.from, Interface: "eth0", CPU: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	before := p.made(t)
	if _, err := s.Send(t.Context(), packet.Stream{Run: 5, ID: 1, Ends: p.ends, Size: 1000, Packets: packets, Rate: rate}); err != nil {
		t.Fatal(err)
	}
	got, err := r.Receive(t.Context(), packets, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	arrivals := make([]delay.Packet, len(got.Receptions))
	for i, r := range got.Receptions {
		arrivals[i] = delay.Packet{Sequence: r.Sequence, Sent: r.Sent, Received: r.Kernel}
	}
	made := p.made(t)
	if came := made.Packets - before.Packets; came != int64(packets) || made.Missed+made.Refused > 0 {
		t.Fatalf("%s counts %d of %d packets, %d of them missed, %d refused", p.by, came, packets, made.Missed, made.Refused)
	}
	return delay.Analyze(packets, arrivals, delay.Cut{}), arrivals, made
}

// made returns the counts of netem or the emulator for the packets from the generator.
func (p path) made(t *testing.T) Made {
	t.Helper()
	made, err := p.fabric.Made(t.Context())
	if err != nil || len(made) != 2 || made[0].Way != Out || made[0].By != p.by {
		t.Fatalf("%+v, %v", made, err)
	}
	return made[0]
}

// within fails the test unless low <= got <= high.
func within(t *testing.T, what string, got, low, high float64) {
	t.Helper()
	if math.IsNaN(got) || got < low || got > high {
		t.Errorf("%s: got %g, want %g to %g", what, got, low, high)
	}
}

// drift is the largest adjustment, in µs, of the kernel's time stamps against the sender's clock
// during a stream.
const drift = 200

// calm repeats the stream until the least delay is at most most µs, but at most ten times. A busy
// host delays all packets of some streams, but not of every stream.
func (p path) calm(t *testing.T, packets int, rate, most float64) (r delay.Report, arrivals []delay.Packet, made Made) {
	t.Helper()
	for range 10 {
		if r, arrivals, made = p.stream(t, packets, rate); r.Delay.Min <= most {
			break
		}
	}
	return r, arrivals, made
}

func TestImpairDelayIsReadBack(t *testing.T) {
	p := newPath(t, Link{Delay: 20 * time.Millisecond})
	r, _, made := p.calm(t, 2000, 4000, 21000)
	within(t, "least delay, µs", r.Delay.Min, 20000-drift, 21000)
	if r.Lost > 0 || r.Reordered > 0 || r.Duplicates > 0 {
		t.Errorf("lost %d packets, reordered %d, duplicated %d, want 0", r.Lost, r.Reordered, r.Duplicates)
	}
	if made.Sent != made.Packets || made.Bytes != 1000*made.Sent || made.Lost > 0 {
		t.Errorf("the emulator sent %d packets, %d bytes", made.Sent, made.Bytes)
	}
	// The measured delays include the lateness that the emulator reports.
	within(t, "latest, µs", r.Delay.Max-20000, float64(made.Lateness.Most.Microseconds())/2-drift, math.Inf(1))
}

// TestImpairPeers checks that a link with peers delays only the packets of those peers. The other
// direction must stay as it is.
func TestImpairPeers(t *testing.T) {
	for _, c := range []struct {
		peer, way string
		want      float64
	}{{"sprout", Both, 20000}, {"sprout", Out, 20000}, {"bono", Both, 0}, {"sprout", In, 0}} {
		r, _, made := newPath(t, Link{Delay: 20 * time.Millisecond, Peers: []string{c.peer}, Way: c.way}).calm(t, 500, 4000, c.want+1000)
		name := c.peer + " " + c.way
		within(t, name+": least delay, µs", r.Delay.Min, c.want-drift, c.want+1000)
		if aside := made.Aside >= 500; aside != (c.peer == "bono") || made.Sent != made.Packets {
			t.Errorf("%s: counted %d of %d packets as traffic of other peers, sent %d", name, made.Aside, made.Packets, made.Sent)
		}
	}
}

func TestImpairWays(t *testing.T) {
	for way, want := range map[string]float64{Out: 20000, In: 0} {
		r, _, _ := newPath(t, Link{Delay: 20 * time.Millisecond, Way: way}).calm(t, 500, 4000, want+1000)
		within(t, way+": least delay, µs", r.Delay.Min, want-drift, want+1000)
	}
}

func TestImpairJitterIsReadBackInOrder(t *testing.T) {
	// Packets are 10 ms apart. Jitter brings two of them closer by at most 8 ms.
	r, arrivals, _ := newPath(t, Link{Delay: 20 * time.Millisecond, Jitter: 4 * time.Millisecond}).calm(t, 150, 100, 17000)
	within(t, "least delay, µs", r.Delay.Min, 16000-drift, 17000)
	early := 0
	for _, a := range arrivals {
		if a.Received-a.Sent < 20_000_000 {
			early++
		}
	}
	within(t, "share below the mean", float64(early)/float64(len(arrivals)), 0.1, 0.65)
	// Here jitter would make many packets overtake others.
	r, _, _ = newPath(t, Link{Delay: 20 * time.Millisecond, Jitter: 20 * time.Millisecond}).stream(t, 2000, 4000)
	if r.Reordered > 0 || r.Lost > 0 {
		t.Errorf("jitter reordered %d packets and lost %d", r.Reordered, r.Lost)
	}
	within(t, "greatest delay, µs", r.Delay.Max, 30000, math.Inf(1))
}

func TestImpairLossIsReadBack(t *testing.T) {
	const n, share = 10000, 0.1
	r, _, made := newPath(t, Link{Loss: share}).stream(t, n, 20000)
	within(t, "lost", float64(r.Lost), n*share-5*math.Sqrt(n*share), n*share+5*math.Sqrt(n*share))
	if made.Lost != int64(r.Lost) || r.Reordered > 0 {
		t.Errorf("lost %d packets, the emulator counts %d; reordered %d", r.Lost, made.Lost, r.Reordered)
	}
}

func TestImpairReorderingIsReadBack(t *testing.T) {
	const n, share = 2000, 0.1
	r, arrivals, made := newPath(t, Link{Delay: 50 * time.Millisecond, Reorder: share}).stream(t, n, 2000)
	within(t, "overtook", float64(made.Overtook), n*share-5*math.Sqrt(n*share), n*share+5*math.Sqrt(n*share))
	early := 0
	for _, a := range arrivals {
		if a.Received-a.Sent < 25_000_000 {
			early++
		}
	}
	within(t, "came without the delay", float64(early), float64(made.Overtook)*0.9, float64(made.Overtook))
	// 100 packets are in flight at any time, so nearly all packets are overtaken. Only the
	// last ones need not be.
	within(t, "reordered", float64(r.Reordered), float64(n-made.Overtook)*0.9, float64(n-made.Overtook))
}

func TestImpairRateIsReadBack(t *testing.T) {
	// 40 Mb/s are offered for 0.2 s. The frames queue: 1000 frames take 0.8 s at 10 Mb/s.
	r, arrivals, _ := newPath(t, Link{Rate: 10e6, Queue: 1 << 20}).stream(t, 1000, 5000)
	took := float64(arrivals[len(arrivals)-1].Received-arrivals[0].Sent) / 1e9
	within(t, "rate, Mb/s", 8/took, 1, 10.001)
	if r.Lost > 0 || r.Reordered > 0 {
		t.Errorf("lost %d packets, reordered %d, want 0", r.Lost, r.Reordered)
	}
	// A short queue drops the frames above the rate, and bounds the delay.
	r, arrivals, made := newPath(t, Link{Rate: 10e6, Queue: 10000}).stream(t, 1000, 5000)
	if made.Dropped != int64(r.Lost) || r.Reordered > 0 {
		t.Errorf("lost %d packets, the emulator dropped %d; reordered %d", r.Lost, made.Dropped, r.Reordered)
	}
	span := float64(arrivals[len(arrivals)-1].Received-arrivals[0].Sent) / 1e9
	within(t, "rate of what arrived, Mb/s", float64(len(arrivals)*8000)/span/1e6, 1, 10.001)
	within(t, "arrived", float64(r.Received), 10, 400)
}

// TestImpairTCP checks that TCP data arrives whole, even if the kernel leaves checksums and
// segmentation to the interface.
func TestImpairTCP(t *testing.T) {
	p := newPath(t, Link{Delay: 2 * time.Millisecond, Loss: 0.001, Rate: 500e6})
	sent := make([]byte, 8<<20)
	if _, err := rand.Read(sent); err != nil {
		t.Fatal(err)
	}
	var listener net.Listener
	err := netns.Do(p.to, func() (err error) {
		listener, err = new(net.ListenConfig).Listen(t.Context(), "tcp4", p.ends.Dest.String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	done := make(chan error, 1)
	go func() {
		done <- netns.Do(p.from, func() error {
			conn, err := new(net.Dialer).DialContext(t.Context(), "tcp4", p.ends.Dest.String())
			if err != nil {
				return err
			}
			defer conn.Close()
			_, err = conn.Write(sent)
			return err
		})
	}()
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	got, err := io.ReadAll(conn)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("received %d of %d bytes, or other bytes: %v", len(got), len(sent), err)
	}
}

// TestImpairVLAN checks that frames keep their VLAN tags. The kernel removes the tags from frames
// that a program reads.
func TestImpairVLAN(t *testing.T) {
	p := newPath(t, Link{Delay: time.Millisecond})
	open := func(place string) (s *socket) {
		err := netns.Do(place, func() (err error) {
			s, err = openSocket("eth0")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		hosttest.AtEnd(t, s.Close)
		return s
	}
	from, to := open(p.from), open(p.to)
	const tpid, vlan, kind = 0x8100, 5, 0x88b5 // kind: an EtherType for experiments
	bytes := make([]byte, vnetSize, vnetSize+64)
	bytes = append(append(bytes, p.ends.DestMAC...), 2, 0, 0, 0, 0, 1)
	for _, v := range []uint16{tpid, vlan, kind} {
		bytes = binary.BigEndian.AppendUint16(bytes, v)
	}
	bytes = append(bytes, "forty-six bytes at least, for a frame of sixty"...)
	var b batch
	b.set(0, bytes)
	if b.send(from, 1) > 0 {
		t.Fatal("the kernel did not accept the frame")
	}
	var f frame
	hosttest.Until(t, time.Minute, "the frame arrives", func() bool {
		if f.Bytes = nil; to.next(&f) {
			to.release() // f stays valid, because no other frame overwrites it meanwhile
		}
		return binary.BigEndian.Uint16(append(f.Bytes, make([]byte, 64)...)[vnetSize+macSize:]) == kind
	})
	if f.Tag != tpid<<16|vlan || len(f.Bytes) != len(bytes)-tagSize {
		t.Errorf("the frame arrived with tag %#x, %d bytes", f.Tag, len(f.Bytes))
	}
}

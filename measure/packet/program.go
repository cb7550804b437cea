package packet

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/internal/mmsg"
	"vitrine/measure/cpu"
)

// Instances run the programs of this package. Each prints a Record.

// A Record is the output of a sender, a receiver or an echo. It is a line of JSON, and a line with
// its receptions, packed and in base64, because standard output may be a terminal.
type Record struct {
	Boot     string `json:"boot_id"` // of the kernel that stamped: stamps of one kernel share a clock
	Sent     *Sent  `json:"sent,omitempty"`
	Count    int    `json:"receptions"`
	Dropped  uint32 `json:"dropped"`
	Foreign  int    `json:"foreign"`
	Drift    int64  `json:"drift_ns"`
	Hardware bool   `json:"hardware_stamps"`
	Room     int    `json:"receive_buffer_bytes,omitempty"` // of a receiver or an echo, with the kernel's overhead; 0: not known

	// The CPU time of a span without packets, and of the stream after it.
	Background *Usage `json:"background,omitempty"`
	Used       *Usage `json:"used,omitempty"`

	Receptions []Reception `json:"-"`
}

// receptionSize is the size of a packed reception in bytes.
const receptionSize = 4 + 2 + 4 + 5*8

// Write prints the record.
func (r *Record) Write(w io.Writer) error {
	r.Count = len(r.Receptions)
	if text, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		r.Boot = strings.TrimSpace(string(text))
	}
	packed := make([]byte, 0, receptionSize*len(r.Receptions))
	for _, x := range r.Receptions {
		r.Hardware = r.Hardware || x.Hardware != 0
		packed = binary.BigEndian.AppendUint32(packed, x.Run)
		packed = binary.BigEndian.AppendUint16(packed, x.Stream)
		packed = binary.BigEndian.AppendUint32(packed, x.Sequence)
		for _, at := range []int64{x.Scheduled, x.Sent, x.Kernel, x.Hardware, x.Read} {
			packed = binary.BigEndian.AppendUint64(packed, uint64(at))
		}
	}
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "%s\n%s\n", line, base64.StdEncoding.EncodeToString(packed))
	return out.Flush()
}

// recordBegin starts a record's first line.
var recordBegin = []byte(`{"boot_id":`)

// ReadRecord reads the output of Write. If there are several records, it reads the last
// one, because a restarted program appends. It skips other console output.
func ReadRecord(text []byte) (*Record, error) {
	i := bytes.LastIndex(text, recordBegin)
	if i < 0 {
		return nil, errors.New("not a record of a sender, receiver or echo: no line begins with " + string(recordBegin))
	}
	head, rest, whole := bytes.Cut(text[i:], []byte("\n"))
	if !whole {
		return nil, errors.New("the record is truncated")
	}
	body, _, _ := bytes.Cut(rest, []byte("\n"))
	var r Record
	if err := json.Unmarshal(head, &r); err != nil {
		return nil, fmt.Errorf("not a record of a sender, receiver or echo: %w", err)
	}
	packed, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(body)))
	if err != nil {
		return nil, fmt.Errorf("not a record of a sender, receiver or echo: %w", err)
	}
	if len(packed) != r.Count*receptionSize {
		return nil, fmt.Errorf("the record is truncated: %d receptions in %d bytes", r.Count, len(packed))
	}
	for ; len(packed) > 0; packed = packed[receptionSize:] {
		at := func(i int) int64 { return int64(binary.BigEndian.Uint64(packed[10+8*i:])) }
		r.Receptions = append(r.Receptions, Reception{
			Probe: Probe{
				Run: binary.BigEndian.Uint32(packed), Stream: binary.BigEndian.Uint16(packed[4:]), Sequence: binary.BigEndian.Uint32(packed[6:]),
				Scheduled: at(0), Sent: at(1),
			},
			Kernel: at(2), Hardware: at(3), Read: at(4),
		})
	}
	return &r, nil
}

// RunEcho is `vitrine reference echo`: see Echo. It prints "ready" on standard error when it is
// ready, and its Record when the context ends (SIGTERM).
func RunEcho(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := pflag.NewFlagSet("echo", pflag.ContinueOnError)
	flags.SetOutput(stderr)
	listen := flags.String("listen", "", "address and port, IPv4")
	cpu := flags.Int("cpu", -1, "CPU to run on; below 0: any")
	if err := parse(flags, args); err != nil {
		return err
	}
	at, err := address("--listen", *listen)
	if err != nil {
		return err
	}
	e, err := OpenEcho(at, *cpu)
	if err != nil {
		return err
	}
	defer e.Close()
	fmt.Fprintln(stderr, "ready")
	if err := e.Run(ctx); err != nil {
		return err
	}
	dropped, err := e.Dropped()
	if err != nil {
		return err
	}
	return (&Record{Dropped: dropped, Room: mmsg.ReceiveBuffer(e.fd)}).Write(stdout)
}

// MostReceived is the largest number of probes that one receiver accepts, over all streams.
const MostReceived = 1 << 26

// RunReceive is `vitrine reference receive`. It receives the probes of a run until
// the context ends (SIGTERM) and no more arrive, then prints its Record.
func RunReceive(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := pflag.NewFlagSet("receive", pflag.ContinueOnError)
	flags.SetOutput(stderr)
	listen := flags.String("listen", "", "address and port, IPv4")
	link := flags.String("interface", "", "receive frames to that port on this interface, whatever their addresses are")
	run := flags.Uint32("run", 0, "run label of the probes")
	most := flags.Int("most", 1_000_000, "most probes to receive")
	cpu := flags.Int("cpu", -1, "CPU to receive on; below 0: any")
	teach := flags.String("teach", "", "address and port that get a datagram first, so that switches learn where the receiver is")
	if err := parse(flags, args); err != nil {
		return err
	}
	at, err := address("--listen", *listen)
	if err != nil {
		return err
	}
	if *most < 1 || *most > MostReceived {
		return &vitrine.BadInput{File: "--most", Found: fmt.Sprint(*most), Want: fmt.Sprintf("want 1 to %d", MostReceived)}
	}
	r, err := OpenReceiver(ReceiverConfig{Address: at, Interface: *link, Run: *run, CPU: *cpu})
	if err != nil {
		return err
	}
	defer r.Close()
	if *teach != "" {
		to, err := address("--teach", *teach)
		if err == nil {
			err = r.teach(to)
		}
		if err != nil {
			return err
		}
	}
	fmt.Fprintln(stderr, "ready")
	got, err := r.Receive(ctx, *most, 0)
	if err != nil {
		return err
	}
	if left := *most - len(got.Receptions); left > 0 { // packets in flight
		late := got.lateLimit()
		rest, err := r.drain(context.WithoutCancel(ctx), left, late, late)
		if err != nil {
			return err
		}
		got.Receptions, got.Foreign = append(got.Receptions, rest.Receptions...), got.Foreign+rest.Foreign
		got.Dropped = max(got.Dropped, rest.Dropped)
	}
	return (&Record{Receptions: got.Receptions, Dropped: got.Dropped, Foreign: got.Foreign, Drift: got.Drift, Room: mmsg.ReceiveBuffer(r.fd)}).Write(stdout)
}

// sendFlags are the flags of RunSend.
type sendFlags struct {
	link, from, to, mac string
	run                 uint32
	stream              uint16
	size, packets, cpu  int
	rate                float64
	back, dial, bulk    bool
	soaked              string
	count               bool
}

func (f *sendFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.link, "interface", "eth0", "interface to send on")
	flags.StringVar(&f.from, "from", "", "source address and port, IPv4")
	flags.StringVar(&f.to, "to", "", "destination address and port, IPv4")
	flags.StringVar(&f.mac, "mac", "00:00:00:00:00:00", "MAC address of the next hop")
	flags.Uint32Var(&f.run, "run", 0, "run label of the probes")
	flags.Uint16Var(&f.stream, "stream", 1, "stream number of the probes")
	flags.IntVar(&f.size, "size", MinSize, "frame size in bytes, without the frame check sequence")
	flags.IntVar(&f.packets, "packets", 50_000, "number of packets")
	flags.IntVar(&f.cpu, "cpu", -1, "CPU to send from; below 0: any")
	flags.Float64Var(&f.rate, "rate", 10_000, "packets a second")
	flags.BoolVar(&f.back, "back", false, "receive the packets that an echo sends back")
	flags.BoolVar(&f.dial, "dial", false, "send by a UDP socket instead of a packet socket")
	flags.BoolVar(&f.bulk, "bulk", false, "send in the kernel, by XDP: each packet at its own time, or with --rate 0 as fast as possible")
	flags.StringVar(&f.soaked, "soaked", "", "file of a soaker: also measure the stream's CPU time")
	flags.BoolVar(&f.count, "count", false, "count the CPU time by BPF")
}

// RunSend is `vitrine reference send`: it sends one stream and prints its Record.
func RunSend(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var f sendFlags
	flags := pflag.NewFlagSet("send", pflag.ContinueOnError)
	flags.SetOutput(stderr)
	f.register(flags)
	if err := parse(flags, args); err != nil {
		return err
	}
	from, err := address("--from", f.from)
	to, toErr := address("--to", f.to)
	mac, macErr := net.ParseMAC(f.mac)
	if macErr != nil {
		macErr = &vitrine.BadInput{File: "--mac", Found: f.mac, Want: "want six bytes, such as 02:00:00:00:00:01"}
	}
	if err := errors.Join(err, toErr, macErr); err != nil {
		return err
	}
	config := SenderConfig{Interface: f.link, CPU: f.cpu}
	stream := Stream{Run: f.run, ID: f.stream, Size: f.size, Packets: f.packets, Rate: f.rate,
		Ends: Ends{DestMAC: mac, Source: from, Dest: to}}
	if f.bulk {
		return sendInBulk(ctx, config, stream, stdout)
	}
	var s *Sender
	if f.dial {
		s, err = DialSender(config, from, to)
	} else {
		s, err = OpenSender(config)
	}
	if err != nil {
		return err
	}
	defer s.Close()
	stream.Ends.SourceMAC = s.MAC()
	record, err := f.send(ctx, s, stream)
	if err != nil {
		return err
	}
	return record.Write(stdout)
}

// send sends the stream in the way that the flags select.
func (f *sendFlags) send(ctx context.Context, s *Sender, stream Stream) (*Record, error) {
	switch {
	case f.back:
		return s.RoundTrip(ctx, stream, stream.Ends.Source)
	case f.count:
		meter, err := cpu.OpenMeter()
		if err != nil {
			return nil, err
		}
		record, err := s.sendGauged(ctx, stream, &gauge{soaked: f.soaked, meter: meter})
		return record, errors.Join(err, meter.Close())
	case f.soaked != "":
		return s.sendGauged(ctx, stream, &gauge{soaked: f.soaked})
	}
	sent, err := s.Send(ctx, stream)
	if err != nil {
		return nil, err
	}
	return &Record{Sent: &sent}, nil
}

// How long to wait for packets in flight, once all are sent.
const (
	lateFirst = 3 * time.Second        // for the first: a path may hold packets for long
	lateNext  = 300 * time.Millisecond // since the last one
)

// RoundTrip sends the stream and then receives the packets that an echo returned to the
// address, which must be the sender's own. While RoundTrip sends, the kernel stamps and
// queues the packets, so receiving does not disturb sending.
func (s *Sender) RoundTrip(ctx context.Context, stream Stream, back netip.AddrPort) (*Record, error) {
	config := ReceiverConfig{NetNS: s.config.NetNS, Address: back, CPU: s.config.CPU, Run: stream.Run, Stream: stream.ID, Room: stream.Room()}
	r := &Receiver{config: config, fd: s.fd} // a dialed socket also receives the returned packets
	if s.skip > 0 {
		if err := prepare(r.fd, config.Room); err != nil {
			return nil, err
		}
	} else {
		var err error
		if r, err = OpenReceiver(config); err != nil {
			return nil, err
		}
		defer r.Close()
	}
	sent, err := s.Send(ctx, stream)
	if err != nil {
		return nil, err
	}
	got, err := r.drain(ctx, 2*stream.Packets, lateFirst, lateNext+time.Duration(stream.Interval())) // twice, for duplicates
	if err != nil {
		return nil, err
	}
	return &Record{Sent: &sent, Receptions: got.Receptions, Dropped: got.Dropped, Foreign: got.Foreign, Drift: sent.Drift}, nil
}

// drain receives the packets that have arrived or still arrive. It waits at most first for the
// first packet. After that it stops when no packet has arrived for quiet.
func (r *Receiver) drain(ctx context.Context, most int, first, quiet time.Duration) (Received, error) {
	if !r.awaitPacket(first) {
		return Received{}, nil
	}
	return r.Receive(ctx, most, quiet)
}

// lateLimit returns how long packets in flight may still take: as long as the slowest packet so
// far, but at least lateNext and at most lateFirst.
func (r *Received) lateLimit() time.Duration {
	if len(r.Receptions) == 0 {
		return lateFirst
	}
	most := lateNext
	for _, x := range r.Receptions {
		most = max(most, time.Duration(x.Read-x.Sent))
	}
	return min(most, lateFirst)
}

// awaitPacket reports whether a packet has arrived or arrives within the time.
func (r *Receiver) awaitPacket(within time.Duration) bool {
	for end := time.Now().Add(within); time.Now().Before(end); {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(r.fd), Events: unix.POLLIN}}, int(within.Milliseconds()))
		if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return true // Receive reports the error
		}
	}
	return false
}

func parse(flags *pflag.FlagSet, args []string) error {
	err := flags.Parse(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return err
	case err == nil && flags.NArg() > 0:
		err = fmt.Errorf("unexpected %q", flags.Arg(0))
	}
	if err != nil {
		return &vitrine.BadInput{File: "vitrine reference " + flags.Name(), Found: err.Error(), Want: "see vitrine reference " + flags.Name() + " --help"}
	}
	return nil
}

func address(flag, text string) (netip.AddrPort, error) {
	at, err := netip.ParseAddrPort(text)
	if err != nil || !at.Addr().Is4() || at.Port() == 0 {
		return at, &vitrine.BadInput{File: flag, Found: fmt.Sprintf("%q", text), Want: "want an IPv4 address and a port, such as 198.18.0.1:7001"}
	}
	return at, nil
}

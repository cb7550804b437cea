package measure

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"

	"vitrine"
	"vitrine/fabric"
	"vitrine/internal/netns"
	"vitrine/measure/packet"
	"vitrine/spec"
	"vitrine/substrate"
)

const (
	senderPort   = 7001
	receiverPort = 7002
	stopGrace    = 20 * time.Second // a receiver prints what it has
	readyWithin  = 3 * time.Minute  // a virtual machine boots
	pollEvery    = 10 * time.Millisecond
	floorLink    = "lo"
	receiverName = "receiver-1"
	scratch      = "scratch"
	guestMemory  = 768 << 20 // of a virtual machine, which may hold this program in memory; bytes
	etherSize    = 14        // of an Ethernet header, which the MTU does not count
)

// floorAddress is of the sender and the receiver alike on the floor's loopback
// interface; from the range for benchmarks (RFC 2544, appendix C.2.2).
func floorAddress() netip.Addr { return netip.AddrFrom4([4]byte{198, 18, 255, 1}) }

// A place is one of the two instances of a visit.
type place struct {
	name     string
	dir      string
	instance substrate.Instance
	endpoint fabric.Endpoint
	mac      net.HardwareAddr
	facts    PortFacts
}

// A site is where the streams of a visit run.
type site struct {
	config   *Config
	where    Combination
	closers  []func(context.Context) error // last made, first closed
	sender   *place
	receiver *place
	host     substrate.Substrate
	process  substrate.Process // what runs in the receiver's place
	began    int64             // where the log of it begins
	output   string            // where it prints to
	starts   int
	soaker   *place // nil: none was needed yet

	accelerator string // of virtual machines
}

// openSite puts sender and receiver in place. When it fails nothing stays.
func openSite(ctx context.Context, c *Config, v visit, dir string) (_ *site, err error) {
	s := &site{config: c, where: v.where}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close(context.WithoutCancel(ctx)))
		}
	}()
	choice := spec.Choice{Substrate: v.where.Substrate, Fabric: v.where.Fabric, CFSPeriod: substrate.DefaultCFSPeriod}
	if v.where.Fabric == Floor {
		return s, s.openFloor(ctx, dir)
	}
	if s.host, err = c.Backends.Host(ctx, choice); err != nil {
		return nil, fmt.Errorf("the sender's place: %w", err)
	}
	s.closers = append(s.closers, s.host.Close)
	sub, err := c.Backends.Substrate(ctx, choice, c.Parts[choice.Substrate])
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, sub.Close)
	if s.accelerator, err = substrate.AcceleratorOf(ctx, sub); err != nil {
		return nil, err
	}
	wiring, err := c.Backends.Fabric(ctx, choice, c.Parts[choice.Fabric])
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, wiring.Close)
	from := s.host
	if c.Plan.Settings.Inside {
		if foreignKernel(v.where.Substrate) {
			return nil, &vitrine.Unsupported{What: "a sender inside a virtual machine", Missing: "a clock that is the host's", Do: "measure from the host"}
		}
		from = sub
	}
	if s.sender, err = s.put(ctx, from, wiring, vitrine.Generator, c.CPUs.Generator, dir); err != nil {
		return nil, err
	}
	if s.receiver, err = s.put(ctx, sub, wiring, receiverName, c.CPUs.Function, dir); err != nil {
		return nil, err
	}
	return s, s.look(v.where.Substrate)
}

// openFloor makes one place with a loopback interface for both.
func (s *site) openFloor(ctx context.Context, dir string) (err error) {
	choice := spec.Choice{Substrate: spec.DefaultSubstrate, Fabric: "bridge", CFSPeriod: substrate.DefaultCFSPeriod} // so that the place has a namespace
	if s.host, err = s.config.Backends.Host(ctx, choice); err != nil {
		return err
	}
	s.closers = append(s.closers, s.host.Close)
	cpus := slices.Concat(s.config.CPUs.Generator, s.config.CPUs.Function)
	p, err := s.put(ctx, s.host, nil, vitrine.Generator, cpus, dir)
	if err != nil {
		return err
	}
	p.endpoint = fabric.Endpoint{Addr: floorAddress(), Interface: floorLink}
	s.sender, s.receiver = p, p
	if p.instance.NetNS() == "" { // without the privilege: the host's own loopback interface
		p.endpoint.Addr = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		return s.look(s.where.Substrate)
	}
	err = netns.Do(p.instance.NetNS(), func() error {
		// The frames have this interface's own address as their source.
		if err := os.WriteFile("/proc/sys/net/ipv4/conf/lo/accept_local", []byte("1"), 0); err != nil {
			return err
		}
		err := os.WriteFile("/proc/sys/net/ipv6/conf/lo/disable_ipv6", []byte("1"), 0)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // a kernel without IPv6
			return err
		}
		lo, err := netlink.LinkByName(floorLink)
		if err != nil {
			return err
		}
		return netlink.AddrAdd(lo, &netlink.Addr{IPNet: &net.IPNet{IP: floorAddress().AsSlice(), Mask: net.CIDRMask(32, 32)}})
	})
	if err != nil {
		return fmt.Errorf("set the loopback interface up: %w", err)
	}
	return s.look(s.where.Substrate)
}

// put makes an instance and wires it.
func (s *site) put(ctx context.Context, sub substrate.Substrate, wiring fabric.Fabric, name string, cpus []int, dir string) (*place, error) {
	p := &place{name: name, dir: filepath.Join(dir, name)}
	if err := os.MkdirAll(filepath.Join(p.dir, scratch), 0o755); err != nil {
		return nil, err
	}
	place := substrate.Spec{Run: s.config.RunID, Name: name, Component: name, CPUs: cpus, Dir: p.dir}
	if sub != s.host && foreignKernel(s.where.Substrate) {
		place.Memory = guestMemory
	}
	instance, err := sub.Create(ctx, place)
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", name, err)
	}
	p.instance = instance
	s.closers = append(s.closers, instance.Remove)
	if wiring == nil {
		return p, nil
	}
	if p.endpoint, err = wiring.Attach(ctx, fabric.Port{Instance: name, NetNS: instance.NetNS()}); err != nil {
		return nil, fmt.Errorf("attach %s: %w", name, err)
	}
	s.closers = append(s.closers, func(ctx context.Context) error { return wiring.Detach(ctx, name) })
	return p, nil
}

// close takes everything down, in the order opposite to its making.
func (s *site) close(ctx context.Context) error {
	var errs []error
	if s.process != nil {
		errs = append(errs, s.receiver.instance.Stop(ctx, time.Second))
	}
	for _, f := range slices.Backward(s.closers) {
		errs = append(errs, f(ctx))
	}
	s.closers = nil
	return errors.Join(errs...)
}

// dialed says whether the instances share the host's network, where frames of
// our own making would not pass.
func (s *site) dialed() bool {
	return s.sender.instance.NetNS() == "" || s.where.Fabric != Floor && s.sender.endpoint.Interface == floorLink
}

// look reads how the ports are, and makes each know the other's address.
func (s *site) look(sub string) error {
	for _, p := range []*place{s.sender, s.receiver} {
		if err := netns.Do(p.instance.NetNS(), p.read); err != nil {
			return fmt.Errorf("look at the interface of %s: %w", p.name, err)
		}
	}
	for _, of := range [][2]*place{{s.sender, s.receiver}, {s.receiver, s.sender}} {
		switch {
		case s.dialed() || of[0].endpoint.Interface == floorLink:
			of[0].facts.Neighbour = "none needed"
		case foreignKernel(sub) && of[0] == s.receiver:
			of[0].facts.Neighbour = "the guest's own, by ARP"
		default:
			if err := netns.Do(of[0].instance.NetNS(), func() error { return of[0].know(of[1]) }); err != nil {
				return fmt.Errorf("make %s known to %s: %w", of[1].name, of[0].name, err)
			}
			of[0].facts.Neighbour = "static"
		}
	}
	return nil
}

// foreignKernel says whether instances of the substrate have a kernel of their own.
func foreignKernel(sub string) bool { return sub == "qemu" || sub == "unikernel" }

func (p *place) read() error {
	link, err := netlink.LinkByName(p.endpoint.Interface)
	if err != nil {
		return err
	}
	p.mac = link.Attrs().HardwareAddr
	p.facts = PortFacts{Instance: p.name, Interface: p.endpoint.Interface, Driver: link.Type(), MTU: link.Attrs().MTU, IPv6: "not known"}
	switch text, err := os.ReadFile("/proc/sys/net/ipv6/conf/" + p.endpoint.Interface + "/disable_ipv6"); {
	case errors.Is(err, fs.ErrNotExist):
		p.facts.IPv6 = "off"
	case err == nil:
		p.facts.IPv6 = map[string]string{"0": "on", "1": "off"}[strings.TrimSpace(string(text))]
	}
	tool, err := ethtool.NewEthtool()
	if err != nil {
		return err
	}
	defer tool.Close()
	features, err := tool.Features(p.endpoint.Interface)
	if err != nil {
		p.facts.Offloads = []string{"not known: " + err.Error()}
		return nil
	}
	p.facts.Offloads = []string{}
	for name, on := range features {
		if on {
			p.facts.Offloads = append(p.facts.Offloads, name)
		}
	}
	slices.Sort(p.facts.Offloads)
	return nil
}

// know makes the other's address a static neighbour.
func (p *place) know(other *place) error {
	link, err := netlink.LinkByName(p.endpoint.Interface)
	if err != nil {
		return err
	}
	return netlink.NeighSet(&netlink.Neigh{
		LinkIndex: link.Attrs().Index, IP: other.endpoint.Addr.AsSlice(), HardwareAddr: other.mac, State: netlink.NUD_PERMANENT,
	})
}

// largest is the largest frame that the path takes; bytes without the frame
// check sequence.
func (s *site) largest() int {
	return min(s.sender.facts.MTU, s.receiver.facts.MTU) + etherSize
}

// environment keeps the runtime of our own programs from interrupting the
// measuring: by signals to threads that run long, and by collecting garbage.
func environment() []string { return []string{"GODEBUG=asyncpreemptoff=1", "GOGC=off"} }

func (s *site) to() netip.AddrPort {
	return netip.AddrPortFrom(s.receiver.endpoint.Addr, receiverPort)
}

func (s *site) from() netip.AddrPort {
	return netip.AddrPortFrom(s.sender.endpoint.Addr, senderPort)
}

// start starts a program of ours in the receiver's place and waits until it says
// that it is ready.
func (s *site) start(ctx context.Context, args ...string) error {
	p := s.receiver
	s.starts++
	s.output = filepath.Join(p.dir, scratch, fmt.Sprintf("receiver-%d", s.starts))
	s.began = size(filepath.Join(p.dir, "log"))
	process, err := p.instance.Start(ctx, vitrine.Command{
		Args: append([]string{s.config.Backends.Self, "reference"}, args...), Env: environment(), Stdout: s.output,
	})
	if err != nil {
		return fmt.Errorf("start %s in %s: %w", args[0], p.name, err)
	}
	s.process = process
	return s.await(ctx, p, process, s.began)
}

// await waits until what was started in the place says that it is ready.
func (s *site) await(ctx context.Context, p *place, process substrate.Process, began int64) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyWithin, fmt.Errorf("not ready within %s", readyWithin))
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		text := since(filepath.Join(p.dir, "log"), began)
		if slices.Contains(strings.Fields(text), "ready") {
			return nil
		}
		select {
		case <-process.Done():
			return fmt.Errorf("%s ended (%w); its log ends:\n%s", p.name, errors.Join(process.Err(), errors.New("before it was ready")), text)
		case <-ctx.Done():
			return fmt.Errorf("%s: %w; its log ends:\n%s", p.name, context.Cause(ctx), text)
		case <-tick.C:
		}
	}
}

// stop ends what start started and gives what it printed.
func (s *site) stop(ctx context.Context) ([]byte, error) {
	process := s.process
	s.process = nil
	if err := s.receiver.instance.Stop(ctx, stopGrace); err != nil {
		return nil, fmt.Errorf("stop %s: %w", s.receiver.name, err)
	}
	<-process.Done()
	text, err := take(s.output)
	if err != nil {
		return nil, fmt.Errorf("read what %s received: %w", s.receiver.name, err)
	}
	return text, nil
}

// take reads a file and removes it.
func take(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return text, os.Remove(path)
}

func size(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// since is the file from the offset on, at most the last 4 KiB.
func since(path string, offset int64) string {
	text, err := os.ReadFile(path)
	if err != nil || int64(len(text)) < offset {
		return ""
	}
	text = text[offset:]
	return string(text[max(0, len(text)-4096):])
}

// send sends one stream and gives what the sender says of it.
func (s *site) send(ctx context.Context, run uint32, x stream, more ...string) (*packet.Record, error) {
	args := []string{
		s.config.Backends.Self, "reference", "send", "--interface", s.sender.endpoint.Interface,
		"--from", s.from().String(), "--to", s.to().String(), "--mac", s.mac(),
		"--run", strconv.FormatUint(uint64(run), 10), "--stream", strconv.Itoa(int(x.id)), "--size", strconv.Itoa(x.size),
		"--packets", strconv.Itoa(x.packets), "--rate", strconv.FormatFloat(x.rate, 'f', -1, 64),
		"--cpu", strconv.Itoa(s.config.CPUs.Generator[0]),
	}
	if x.way == RoundTrip {
		args = append(args, "--back")
	}
	if s.dialed() {
		args = append(args, "--dial")
	}
	out := filepath.Join(s.sender.dir, scratch, "sent")
	command := vitrine.Command{Args: append(args, more...), Env: environment(), Stdout: out}
	if err := s.sender.instance.Run(ctx, command); err != nil {
		return nil, fmt.Errorf("send: %w", err)
	}
	text, err := take(out)
	if err != nil {
		return nil, fmt.Errorf("read what the sender says: %w", err)
	}
	return packet.ReadRecord(text)
}

// mac is the receiver's.
func (s *site) mac() string {
	if len(s.receiver.mac) != 6 {
		return "00:00:00:00:00:00" // lo
	}
	return s.receiver.mac.String()
}

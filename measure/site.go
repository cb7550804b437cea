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
	"vitrine/measure/packet"
	"vitrine/spec"
	"vitrine/substrate"
	"vitrine/testbed"
)

const (
	senderPort   = 7001
	receiverPort = 7002
	stopGrace    = 20 * time.Second // for a receiver to print its record
	readyWithin  = 3 * time.Minute  // for a virtual machine to boot
	floorLink    = "lo"
	guestMemory  = 768 << 20 // bytes, of a virtual machine; it may hold this program in memory
	etherSize    = 14        // bytes of an Ethernet header, which the MTU does not count
)

// Receiver is the component of the receiver, whose instance is receiver-1.
const Receiver = "receiver"

// floorAddress is the address of both sender and receiver on the floor's loopback interface. It is
// in the range for benchmarks (RFC 2544, appendix C.2.2).
func floorAddress() netip.Addr { return netip.AddrFrom4([4]byte{198, 18, 255, 1}) }

// A port is an instance with its interface.
type port struct {
	*testbed.Instance
	mac   net.HardwareAddr
	card  bool // packets pass a network card
	facts PortFacts
}

// A site is where the streams of a visit run.
type site struct {
	*testbed.Site
	config   *Config
	where    Combination
	dir      string // of the instances
	guest    bool   // the receiver has its own kernel
	sender   *port
	receiver *port
	output   string // file for the output of the program at the receiver
	starts   int
	soaker   *testbed.Instance // nil until it is needed
}

// openSite places sender and receiver. On error it leaves nothing behind.
func openSite(ctx context.Context, c *Config, where Combination, dir string) (_ *site, err error) {
	s := &site{config: c, where: where, dir: dir}
	choice := spec.Choice{Substrate: where.Substrate, Fabric: where.Fabric, CFSPeriod: substrate.DefaultCFSPeriod}
	if where.Fabric == Floor { // both on the host, in one place without a link
		choice.Substrate, choice.Fabric = "", ""
	}
	if s.Site, err = testbed.Open(ctx, c.Testbed, choice); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close(context.WithoutCancel(ctx)))
		}
	}()
	if where.Fabric == Floor {
		err = s.placeFloor(ctx)
	} else {
		err = s.place(ctx)
	}
	if err != nil {
		return nil, err
	}
	return s, s.readPorts()
}

// place places sender and receiver. The sender is on the host unless Settings.Inside is
// set.
func (s *site) place(ctx context.Context) error {
	s.guest = substrate.OwnKernel(s.Substrate())
	inside := s.config.Plan.Settings.Inside
	if inside && s.guest {
		return &vitrine.Unsupported{What: "a sender inside a virtual machine", Missing: "a clock that it shares with the host", Do: "measure from the host"}
	}
	receiver := substrate.Spec{Name: Receiver + "-1", Component: Receiver, CPUs: s.config.CPUs.Function}
	if s.guest {
		receiver.Memory = guestMemory
		receiver.CPUs = receiver.CPUs[:1] // the CPU whose time is measured; a guest with more could use another
	}
	placed, err := s.Place(ctx, s.dir, s.senderSpec(s.config.CPUs.Generator, !inside), testbed.Spec{Spec: receiver})
	if err != nil {
		return err
	}
	s.sender, s.receiver = &port{Instance: placed.Instances[0]}, &port{Instance: placed.Instances[1]}
	return nil
}

func (s *site) senderSpec(cpus []int, onHost bool) testbed.Spec {
	return testbed.Spec{OnHost: onHost, Spec: substrate.Spec{Name: vitrine.Generator, Component: vitrine.Generator, CPUs: cpus}}
}

// placeFloor makes one place with a loopback interface for sender and receiver.
func (s *site) placeFloor(ctx context.Context) error {
	placed, err := s.Place(ctx, s.dir, s.senderSpec(slices.Concat(s.config.CPUs.Generator, s.config.CPUs.Function), true))
	if err != nil {
		return err
	}
	p := &port{Instance: placed.Instances[0]}
	p.Endpoint = fabric.Endpoint{Addr: floorAddress(), Interface: floorLink}
	s.sender, s.receiver = p, p
	if p.NetNS() == "" { // without the privilege: the host's own loopback interface
		p.Endpoint.Addr = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		return nil
	}
	err = p.Inside(func() error {
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
		return fmt.Errorf("set up the loopback interface: %w", err)
	}
	return nil
}

// sharesHostNetwork reports whether the instances share the host's network. That network does not
// carry frames that the sender builds.
func (s *site) sharesHostNetwork() bool {
	return s.sender.NetNS() == "" || s.where.Fabric != Floor && s.sender.Endpoint.Interface == floorLink
}

// readPorts reads the state of both ports and exchanges their MAC addresses.
func (s *site) readPorts() error {
	for _, p := range []*port{s.sender, s.receiver} {
		if err := p.Inside(p.read); err != nil {
			return fmt.Errorf("read the interface of %s: %w", p.Name, err)
		}
	}
	for _, of := range [][2]*port{{s.sender, s.receiver}, {s.receiver, s.sender}} {
		switch {
		case s.sharesHostNetwork() || of[0].Endpoint.Interface == floorLink:
			of[0].facts.Neighbour, of[0].card = "none needed", false // packets stay on the host
		case s.guest && of[0] == s.receiver:
			of[0].facts.Neighbour = "the guest's own, by ARP"
		default:
			if err := of[0].AddNeighbour(of[1].Endpoint.Addr, of[1].mac); err != nil {
				return fmt.Errorf("add %s as a neighbour of %s: %w", of[1].Name, of[0].Name, err)
			}
			of[0].facts.Neighbour = "static"
		}
	}
	return nil
}

func (p *port) read() error {
	link, err := netlink.LinkByName(p.Endpoint.Interface)
	if err != nil {
		return err
	}
	p.mac = link.Attrs().HardwareAddr
	p.card = link.Type() == "device" // not a virtual interface; the loopback interface has this type too
	p.facts = PortFacts{Instance: p.Name, Interface: p.Endpoint.Interface, Driver: link.Type(), MTU: link.Attrs().MTU, IPv6: "not known"}
	switch text, err := os.ReadFile("/proc/sys/net/ipv6/conf/" + p.Endpoint.Interface + "/disable_ipv6"); {
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
	features, err := tool.Features(p.Endpoint.Interface)
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

// largest returns the maximum frame size of the path, in bytes without the frame check
// sequence.
func (s *site) largest() int {
	return min(s.sender.facts.MTU, s.receiver.facts.MTU) + etherSize
}

// environment keeps the Go runtime from interrupting our own programs by preemption
// signals or garbage collection while they measure.
func environment() []string { return []string{"GODEBUG=asyncpreemptoff=1", "GOGC=off"} }

func (s *site) receiverAddr() netip.AddrPort {
	return s.receiver.At(receiverPort)
}

func (s *site) senderAddr() netip.AddrPort {
	return s.sender.At(senderPort)
}

// start starts one of our programs at the receiver and waits until it logs that it is
// ready.
func (s *site) start(ctx context.Context, args ...string) error {
	s.starts++
	s.output = filepath.Join(s.receiver.Scratch(), fmt.Sprintf("receiver-%d", s.starts))
	err := s.receiver.Start(ctx, vitrine.Command{
		Args: append([]string{s.config.Testbed.Self, "reference"}, args...), Env: environment(), Stdout: s.output,
	})
	if err != nil {
		return err
	}
	return awaitReady(ctx, s.receiver.Instance)
}

// awaitReady waits until the instance logs that it is ready.
func awaitReady(ctx context.Context, in *testbed.Instance) error {
	return in.Await(ctx, readyWithin, func(context.Context) error {
		if !slices.Contains(strings.Fields(in.Log()), "ready") {
			return errors.New("it has not logged that it is ready")
		}
		return nil
	})
}

// stop ends the program of start and returns its output.
func (s *site) stop(ctx context.Context) ([]byte, error) {
	if err := s.receiver.Stop(ctx, stopGrace); err != nil {
		return nil, err
	}
	<-s.receiver.Done()
	text, err := readAndRemove(s.output)
	if err != nil {
		return nil, fmt.Errorf("read the record of %s: %w", s.receiver.Name, err)
	}
	return text, nil
}

// readAndRemove reads a file and removes it.
func readAndRemove(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return text, os.Remove(path)
}

// send sends one stream and returns the sender's record.
func (s *site) send(ctx context.Context, run uint32, x stream, more ...string) (*packet.Record, error) {
	args := []string{
		s.config.Testbed.Self, "reference", "send", "--interface", s.sender.Endpoint.Interface,
		"--from", s.senderAddr().String(), "--to", s.receiverAddr().String(), "--mac", s.mac(),
		"--run", strconv.FormatUint(uint64(run), 10), "--stream", strconv.Itoa(int(x.id)), "--size", strconv.Itoa(x.size),
		"--packets", strconv.Itoa(x.packets), "--rate", strconv.FormatFloat(x.rate, 'f', -1, 64),
		"--cpu", strconv.Itoa(s.config.CPUs.Generator[0]),
	}
	if x.way == RoundTrip {
		args = append(args, "--back")
	}
	if s.sharesHostNetwork() {
		args = append(args, "--dial")
	}
	out := filepath.Join(s.sender.Scratch(), "sent")
	command := vitrine.Command{Args: append(args, more...), Env: environment(), Stdout: out}
	if err := s.sender.Run(ctx, command); err != nil {
		return nil, fmt.Errorf("send: %w", err)
	}
	text, err := readAndRemove(out)
	if err != nil {
		return nil, fmt.Errorf("read the sender's record: %w", err)
	}
	return packet.ReadRecord(text)
}

// mac returns the receiver's MAC address.
func (s *site) mac() string {
	if len(s.receiver.mac) != 6 {
		return "00:00:00:00:00:00" // lo
	}
	return s.receiver.mac.String()
}

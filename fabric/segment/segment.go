// Package segment makes the Ethernet segment of one run from network devices of
// this host. It makes a namespace for the things that join instances, gives out
// addresses, makes the interface eth0 in each instance, and removes all of it.
// Fabrics differ in their Wiring: how eth0 is made. The host's own interfaces,
// addresses, routes and rules stay as they are, except for interfaces that a
// Lender moves into instances and puts back. No two runs meet.
package segment

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/fabric"
	"vitrine/fabric/mirror"
	"vitrine/internal/netns"
	"vitrine/internal/runstate"
)

// Inside is the name of the interface in the instance.
const Inside = "eth0"

// A Kind describes a kind of fabric.
type Kind struct {
	Name  string // "bridge"
	Needs string // of the kernel: "CONFIG_BRIDGE, CONFIG_VETH"
	Do    string // what to do where the kernel lacks it: "modprobe bridge veth"
	Limit int    // how many instances may be attached at once; 0: any number
}

// Options are the parameters that all fabrics on a segment have.
type Options struct {
	// First is the first instance's address and the prefix length of its network;
	// the default is 198.18.0.1/16. Fabrics that lead out of this host need a
	// different one on each host, such as 198.18.1.1/16.
	First string `yaml:"first,omitempty" json:"first,omitempty"`
	// MTU is the MTU of the instances' interfaces, in bytes. The default is 1500,
	// or less if an interface of the host that the fabric uses has less.
	MTU int `yaml:"mtu,omitempty" json:"mtu,omitempty" jsonschema:"minimum=68,maximum=65535"`
}

// Config configures a segment.
type Config struct {
	Run *runstate.Run // the run whose instances are wired
	Kind
	Options
	// Outward says that the segment is connected to more than this run. No two
	// such segments of this host give out the same address.
	Outward bool
}

// A Wiring makes the parts in which kinds of fabric differ. The segment calls
// it from one goroutine at a time.
type Wiring interface {
	// Make makes what Join connects instances to, such as a bridge. It runs on a
	// thread in the segment's namespace. Everything that it makes there is removed
	// with the namespace. If it makes anything elsewhere, the Wiring must be an
	// Unmaker.
	Make(s *Segment) error

	// Join makes the interface end.Inner in the instance's namespace, down and
	// without addresses. When it fails it leaves nothing behind.
	Join(s *Segment, end *End) error

	// Cut removes everything that Join made, in the instance's namespace too. If
	// the namespace or the interface is already gone, that is no error.
	Cut(s *Segment, end *End) error
}

// An Unmaker is a Wiring that makes things outside the segment's namespace.
// Unmake removes them. It is idempotent, and is called after a failed Make too.
type Unmaker interface{ Unmake(s *Segment) error }

// A Settler is a Wiring in which more than the two parts of an end must work
// before the instance can be reached. Settle waits for the rest.
type Settler interface {
	Settle(s *Segment, end *End) error
}

// An End is the connection of an instance to the segment.
type End struct {
	fabric.Port
	NS    int          // file descriptor of the instance's namespace, during Join
	Outer string       // name of the part outside the instance: "p1"; unique in the run
	Index int          // of the part outside; 0: there is none
	Inner string       // name of the interface in the instance after Join; Configure renames it to Inside
	Loose bool         // set by Join: the interface may have no carrier yet, so nothing waits for one
	Addr  netip.Prefix // of the instance

	Links *netlink.Handle // set by Join: in the namespace of the part outside; nil: the segment's namespace

	claim net.Conn // on the address; nil: not Outward
}

// A Segment is one run's fabric.
type Segment struct {
	Config
	Links *netlink.Handle // in the segment's namespace

	wiring Wiring
	netns  string  // name of the namespace
	claims *Claims // nil: not Outward

	mu       sync.Mutex
	closing  bool // Close was called: nothing can be attached any more
	closed   bool // Close succeeded
	pool     pool
	number   int // number of ends made so far
	attached map[string]*End
}

var (
	_ fabric.Fabric   = (*Segment)(nil)
	_ fabric.Mirrorer = (*Segment)(nil)
)

// New makes a segment. Without the privilege, or without the kernel features
// that the wiring needs, the error is a *vitrine.Unsupported.
func New(config Config, wiring Wiring) (*Segment, error) {
	s := &Segment{Config: config, wiring: wiring, netns: Name(config.Run.ID), attached: make(map[string]*End)}
	if err := s.resolve(); err != nil {
		return nil, err
	}
	if s.Outward {
		var err error
		if s.claims, err = NewClaims(); err != nil {
			return nil, err
		}
	}
	path, err := netns.Create(s.netns)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("making the %s fabric: %w", s.Name, err), s.claims.Close())
	}
	err = netns.Do(path, s.make)
	if err != nil {
		err = fmt.Errorf("making the %s fabric: %w", s.Name, s.Explain(err))
		return nil, errors.Join(err, s.Close(context.Background()))
	}
	return s, nil
}

// make makes the contents of the segment's namespace. It runs on a thread in
// that namespace.
func (s *Segment) make() (err error) {
	if err := Quiet(); err != nil {
		return err
	}
	if s.Links, err = Host(); err != nil {
		return err
	}
	return s.wiring.Make(s)
}

// Name returns the name of the network namespace of a run's fabric. No
// instance's namespace has this name, because instance names end in a number or
// are "generator".
func Name(run string) string { return runstate.Name(run, "fabric") }

// Path returns the path of the segment's namespace.
func (s *Segment) Path() string { return netns.Path(s.netns) }

// Attach joins the instance's namespace to the segment and gives the instance
// the next address.
func (s *Segment) Attach(ctx context.Context, p fabric.Port) (fabric.Endpoint, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	end, err := s.attach(ctx, p)
	if err != nil {
		return fabric.Endpoint{}, fmt.Errorf("attaching %s to the %s fabric: %w", p.Instance, s.Name, s.Explain(err))
	}
	return fabric.Endpoint{Addr: end.Addr.Addr(), Interface: Inside}, nil
}

func (s *Segment) attach(ctx context.Context, p fabric.Port) (*End, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	if p.NetNS == "" {
		return nil, &vitrine.BadInput{File: "fabric " + s.Name, Found: p.Instance + " shares the host's network, which this fabric does not use",
			Want: "an instance with a network namespace, or the fabric loopback or host"}
	}
	if s.closing {
		return nil, errors.New("the fabric is closed")
	}
	if _, has := s.attached[p.Instance]; has {
		return nil, errors.New("it is already attached")
	}
	if s.Limit > 0 && len(s.attached) >= s.Limit {
		return nil, &vitrine.BadInput{File: "fabric " + s.Name, Found: fmt.Sprintf("one more instance, %s", p.Instance),
			Want: fmt.Sprintf("at most %d at once; use the fabric bridge", s.Limit)}
	}
	s.number++
	end := &End{Port: p, Outer: fmt.Sprintf("p%d", s.number), Inner: Inside}
	if err := s.address(end); err != nil {
		return nil, err
	}
	if err := s.join(end); err != nil {
		if errors.Is(err, unix.EEXIST) {
			err = fmt.Errorf("%w: it has an interface %s already", err, Inside)
		}
		return nil, errors.Join(err, end.release())
	}
	s.attached[p.Instance] = end
	s.pool.take(end.Addr)
	return end, nil
}

// address gives the end a free address, and claims it if the segment is
// Outward.
func (s *Segment) address(end *End) (err error) {
	for range s.pool.size() {
		if end.Addr, err = s.pool.next(); err != nil || s.claims == nil {
			return err
		}
		if end.claim, err = s.claims.Take(end.Addr.Addr()); err != nil || end.claim != nil {
			return err
		}
		s.pool.skip(end.Addr)
	}
	return fmt.Errorf("other runs have all addresses of %s", s.pool.first.Masked())
}

// release releases the claim on the address.
func (end *End) release() error {
	if end.claim == nil {
		return nil
	}
	return end.claim.Close()
}

func (s *Segment) join(end *End) error {
	fd, err := unix.Open(end.NetNS, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening network namespace %s: %w", end.NetNS, err)
	}
	defer unix.Close(fd)
	end.NS = fd
	if err := s.wiring.Join(s, end); err != nil {
		return err
	}
	err = s.Configure(end)
	if settler, ok := s.wiring.(Settler); ok && err == nil {
		err = settler.Settle(s, end)
	}
	if err != nil {
		return errors.Join(err, s.wiring.Cut(s, end))
	}
	return nil
}

// Mirror copies the frames that pass the port of one instance, in both
// directions, to the port of another. Both ports must have parts outside the
// instances, in the same namespace.
func (s *Segment) Mirror(_ context.Context, of, to string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ends [2]*End
	for i, instance := range []string{of, to} {
		end, has := s.attached[instance]
		switch {
		case !has:
			return fmt.Errorf("mirroring %s to %s: %s is not attached to the %s fabric", of, to, instance, s.Name)
		case end.Index == 0 || i == 1 && ends[0].Links != end.Links:
			return &vitrine.Unsupported{What: "mirroring " + of + " to " + to, Missing: "a switch with ports of both instances, which the " + s.Name + " fabric does not have", Do: "use the fabric bridge"}
		}
		ends[i] = end
	}
	if err := mirror.Port(s.outside(ends[0]), ends[0].Index, ends[1].Index); err != nil {
		return fmt.Errorf("mirroring %s to %s: %w", of, to, err)
	}
	return nil
}

// Detach removes the instance's interface.
func (s *Segment) Detach(_ context.Context, instance string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.detach(instance); err != nil {
		return fmt.Errorf("detaching %s from the %s fabric: %w", instance, s.Name, err)
	}
	return nil
}

func (s *Segment) detach(instance string) error {
	end, has := s.attached[instance]
	if !has {
		return nil
	}
	if err := s.wiring.Cut(s, end); err != nil {
		return err
	}
	delete(s.attached, instance)
	s.pool.give(end.Addr)
	return end.release()
}

// Close removes all interfaces, and then the namespace. The kernel would remove
// the interfaces with the namespace, but later.
func (s *Segment) Close(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closing = true
	if err := s.close(); err != nil {
		return fmt.Errorf("closing the %s fabric: %w", s.Name, err)
	}
	s.closed = true
	return nil
}

// close does as much as it can even if one part fails. The next call does the
// rest.
func (s *Segment) close() error {
	err := s.unpairAll()
	for instance := range s.attached {
		err = errors.Join(err, s.detach(instance))
	}
	if u, ok := s.wiring.(Unmaker); ok {
		err = errors.Join(err, u.Unmake(s))
	}
	if err == nil && s.Links != nil {
		s.Links.Close()
		s.Links = nil
	}
	return errors.Join(err, s.claims.Close(), netns.Delete(s.netns))
}

// Explain turns an error of the kernel into a *vitrine.Unsupported if it means
// that the kernel lacks what the kind needs, or that the privilege is missing.
func (k Kind) Explain(err error) error {
	switch {
	case err == nil, vitrine.IsUnsupported(err), vitrine.IsBadInput(err):
	case errors.Is(err, unix.EPERM):
		return &vitrine.Unsupported{What: "the " + k.Name + " fabric", Missing: "the privilege (CAP_NET_ADMIN): " + err.Error(), Do: "run as root, or use the fabric loopback"}
	case errors.Is(err, unix.EOPNOTSUPP):
		return &vitrine.Unsupported{What: "the " + k.Name + " fabric", Missing: "a kernel option (" + k.Needs + "): " + err.Error(), Do: k.Do}
	}
	return err
}

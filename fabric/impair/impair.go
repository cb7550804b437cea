// Package impair makes the links of any fabric lose, delay, reorder and queue
// packets, as a long or a thin line would, exactly and so that it can be
// repeated.
//
// The kernel's own netem is missing from many kernels, reorders packets by its
// jitter, and says nothing of how exact it was. So a process of this program
// stands in the middle of the link, one for all links of a run, and moves frames
// between two packet sockets: docs/impair.md says why these.
package impair

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"

	"vitrine/fabric"
	"vitrine/internal/netns"
)

// A Fabric is another one whose links are impaired.
type Fabric struct {
	config Config
	inner  fabric.Fabric
	middle string // the name of the emulators' namespace

	mu       sync.Mutex
	closed   bool
	process  *process // nil until a link is impaired
	number   int      // of links so far
	attached map[string]*port
	made     []Made // of links that are no more
}

// A port is an attached instance.
type port struct {
	addr   netip.Addr
	splice *splice // nil: its link is left as it is
}

var _ fabric.Fabric = (*Fabric)(nil)

// Wrap impairs links of a fabric, whose instances must have network namespaces.
// The fabric is closed with it, and by Wrap when it fails.
func Wrap(ctx context.Context, inner fabric.Fabric, config Config) (*Fabric, error) {
	f := &Fabric{config: config, inner: inner, middle: middle(config.Run.ID), attached: make(map[string]*port)}
	if err := f.config.resolve(); err != nil {
		return nil, errors.Join(err, inner.Close(ctx))
	}
	path, err := netns.Create(f.middle)
	if err == nil {
		err = netns.Do(path, quiet)
	}
	if err != nil {
		err = fmt.Errorf("making the place of impaired links: %w", err)
		return nil, errors.Join(err, netns.Delete(f.middle), inner.Close(ctx))
	}
	return f, nil
}

// middle is the name of the emulators' namespace of a run.
func middle(run string) string { return "vt-" + run + "-impair" }

// quiet keeps the thread's namespace from taking part in what passes.
func quiet() error {
	for key, value := range map[string]string{
		"net/ipv6/conf/all/disable_ipv6": "1", "net/ipv6/conf/default/disable_ipv6": "1", "net/ipv4/ip_forward": "0",
		"net/ipv4/conf/all/arp_ignore": "8", "net/ipv4/conf/default/arp_ignore": "8",
	} {
		err := os.WriteFile("/proc/sys/"+key, []byte(value), 0)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("setting %s: %w", key, err)
		}
	}
	return nil
}

// Attach attaches the instance to the fabric and, when it is at the link's first
// end, puts the emulator into its link.
func (f *Fabric) Attach(ctx context.Context, p fabric.Port) (fabric.Endpoint, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fail := func(err error) (fabric.Endpoint, error) {
		return fabric.Endpoint{}, fmt.Errorf("attaching %s to an impaired fabric: %w", p.Instance, unsupported(err))
	}
	switch {
	case f.closed:
		return fail(errors.New("the fabric is closed"))
	case p.NetNS == "":
		return fail(errors.New("it shares the host's network, whose links are not to be touched; use a fabric of network namespaces, such as bridge"))
	case f.attached[p.Instance] != nil:
		return fail(errors.New("it is attached already"))
	}
	end, err := f.inner.Attach(ctx, p)
	if err != nil {
		return fabric.Endpoint{}, err
	}
	made := &port{addr: end.Addr}
	f.attached[p.Instance] = made
	err = netns.Do(p.NetNS, func() error { return whole(end.Interface) })
	if err == nil && is(p.Instance, f.config.Between[0]) {
		err = f.impair(ctx, p, end, made)
	}
	if err == nil {
		err = f.tellPeers(ctx, p.Instance)
	}
	if err != nil {
		return fail(errors.Join(err, f.detach(context.WithoutCancel(ctx), p.Instance)))
	}
	return end, nil
}

// impair puts the emulator into the link of a new instance.
func (f *Fabric) impair(ctx context.Context, p fabric.Port, end fabric.Endpoint, made *port) error {
	f.number++
	s := &splice{
		middle: netns.Path(f.middle), netns: p.NetNS, name: end.Interface,
		outer: fmt.Sprintf("o%d", f.number), inner: fmt.Sprintf("i%d", f.number),
	}
	made.splice = s
	if err := s.cut(); err != nil {
		return err
	}
	if err := netns.Do(p.NetNS, func() error { return whole(end.Interface) }); err != nil {
		return err
	}
	if err := f.start(); err != nil {
		return err
	}
	_, err := f.process.do(ctx, order{Add: &addition{
		Instance: p.Instance, Outer: s.outer, Inner: s.inner, Seed: f.config.seed(p.Instance),
		Out: f.config.Link, OutDelays: f.config.delays, Back: *f.config.Back, BackDelays: f.config.Back.delays,
		Peers: f.peers(p.Instance),
	}})
	return err
}

// start starts the emulator when none runs, and records it for Clean.
func (f *Fabric) start() error {
	if f.process != nil {
		return nil
	}
	p, err := startProcess(f.config.Command, netns.Path(f.middle), f.config.cpu())
	if err != nil {
		return err
	}
	if err := record(f.config.Run, p.cmd.Process.Pid); err != nil {
		return errors.Join(err, p.stop())
	}
	f.process = p
	return nil
}

// peers says whose packets the link of an instance impairs. A packet between two
// instances that both have an emulator is impaired where it leaves, once.
func (f *Fabric) peers(of string) peers {
	first, second := f.config.Between[0], f.config.Between[1]
	p := peers{Of: of, Out: filter{But: second == Everybody}, Back: filter{But: second == Everybody}}
	for name, peer := range f.attached {
		twice := is(name, first) && is(of, second)
		if name == of {
			continue
		}
		if second == Everybody {
			if twice {
				p.Back.Addrs = append(p.Back.Addrs, peer.addr)
			}
			continue
		}
		if is(name, second) {
			p.Out.Addrs = append(p.Out.Addrs, peer.addr)
			if !twice {
				p.Back.Addrs = append(p.Back.Addrs, peer.addr)
			}
		}
	}
	return p
}

// tellPeers tells the emulator of who has come or gone.
func (f *Fabric) tellPeers(ctx context.Context, but string) error {
	for name, p := range f.attached {
		if name == but || p.splice == nil {
			continue
		}
		now := f.peers(name)
		if _, err := f.process.do(ctx, order{Peers: &now}); err != nil {
			return err
		}
	}
	return nil
}

// Detach takes the emulator out of the instance's link, and the instance off the
// fabric.
func (f *Fabric) Detach(ctx context.Context, instance string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.attached[instance] == nil {
		return nil
	}
	if err := f.detach(ctx, instance); err != nil {
		return fmt.Errorf("detaching %s from an impaired fabric: %w", instance, err)
	}
	if err := f.tellPeers(ctx, instance); err != nil {
		f.config.Logger.Warn("impaired links do not know that an instance has gone", "instance", instance, "error", err)
	}
	return nil
}

func (f *Fabric) detach(ctx context.Context, instance string) error {
	p := f.attached[instance]
	if p.splice != nil {
		f.finish(ctx, instance)
		if err := p.splice.undo(); err != nil {
			return err
		}
	}
	if err := f.inner.Detach(ctx, instance); err != nil {
		return err
	}
	delete(f.attached, instance)
	return nil
}

// finish ends an instance's link and keeps what was made of it. An emulator that
// has ended can say nothing any more.
func (f *Fabric) finish(ctx context.Context, instance string) {
	if f.process == nil {
		return
	}
	made, err := f.process.do(ctx, order{Remove: instance})
	if err != nil {
		f.config.Logger.Warn("what an impaired link made is not known", "instance", instance, "error", err)
		return
	}
	f.made = append(f.made, made...)
	for _, m := range made {
		f.config.Logger.Info("impaired link", "instance", m.Instance, "back", m.Back, "asked", m.Asked, "packets", m.Packets,
			"sent", m.Sent, "lost", m.Lost, "dropped", m.Dropped, "missed", m.Missed, "p99 late", m.Lateness.P99)
	}
}

// Made says what became of packets, link by link: of those that were detached,
// and of those that are.
func (f *Fabric) Made(ctx context.Context) ([]Made, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := slices.Clone(f.made)
	for name, p := range f.attached {
		if p.splice == nil {
			continue
		}
		made, err := f.process.do(ctx, order{Result: name})
		if err != nil {
			return nil, err
		}
		all = append(all, made...)
	}
	slices.SortStableFunc(all, func(a, b Made) int { return strings.Compare(a.Instance, b.Instance) })
	return all, nil
}

// Close ends the emulator, closes the fabric and removes what was made.
func (f *Fabric) Close(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	for _, name := range slices.Collect(maps.Keys(f.attached)) {
		if err := f.detach(ctx, name); err != nil {
			return fmt.Errorf("closing an impaired fabric: %w", err)
		}
	}
	if f.process != nil {
		if err := f.process.stop(); err != nil {
			f.config.Logger.Warn("the link emulator did not end well", "error", err)
		}
		if err := f.config.Run.Erase(recordKind, recordName); err != nil {
			return err
		}
		f.process = nil
	}
	if err := errors.Join(f.inner.Close(ctx), netns.Delete(f.middle)); err != nil {
		return fmt.Errorf("closing an impaired fabric: %w", err)
	}
	f.closed = true
	return nil
}

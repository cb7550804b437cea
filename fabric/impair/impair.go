// Package impair makes the links of any fabric lose, delay, reorder and queue
// packets, as a long or a slow line would, exactly and repeatably.
//
// It cuts an instance's link and joins the ends in a namespace of the run. The
// kernel's netem joins them if the kernel has it and it keeps packets in order.
// Otherwise an emulator does: a process of this program, one for all links of a
// run, that moves frames between packet sockets (docs/impair.md).
package impair

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"vitrine"
	"vitrine/document"
	"vitrine/fabric"
	"vitrine/fabric/segment"
	"vitrine/internal/netns"
	"vitrine/internal/runstate"
)

// A Fabric wraps another fabric and impairs its links.
type Fabric struct {
	config Config
	inner  fabric.Fabric
	middle string // name of the emulators' namespace
	netem  bool   // the kernel has netem, and the config allows it

	mu       sync.Mutex
	closed   bool
	process  atomic.Pointer[process] // nil until a link is emulated; set with mu held
	number   int                     // number of links impaired so far
	attached map[string]*port
	made     []Made // of links that no longer exist
}

// A port is an attached instance.
type port struct {
	at     fabric.Port
	end    fabric.Endpoint
	link   Link
	splice *splice // nil: its link is not impaired
	netem  bool    // netem impairs the link, not the emulator
	// finished says that Fabric.made has the link's counts. The emulator does not
	// know the link any more.
	finished bool
}

var (
	_ fabric.Fabric   = (*Fabric)(nil)
	_ fabric.Mirrorer = (*Fabric)(nil)
	_ fabric.Ender    = (*Fabric)(nil)
)

// Wrap impairs the links of a fabric, whose instances must have network
// namespaces. Closing the new fabric closes inner too; Wrap closes inner when
// it fails. If the config is invalid, the error is a *vitrine.BadInput. If it
// requires netem and the kernel has none, the error is a *vitrine.Unsupported.
func Wrap(ctx context.Context, inner fabric.Fabric, config Config) (*Fabric, error) {
	f := &Fabric{config: config, inner: inner, middle: middle(config.Run.ID), attached: make(map[string]*port)}
	if err := f.resolve(); err != nil {
		return nil, errors.Join(err, inner.Close(ctx))
	}
	path, err := netns.Create(f.middle)
	if err == nil {
		err = netns.Do(path, quiet)
	}
	if err != nil {
		err = fmt.Errorf("making the network namespace of impaired links: %w", err)
		return nil, errors.Join(err, netns.Delete(f.middle), inner.Close(ctx))
	}
	return f, nil
}

// resolve checks the config and finds out whether netem can be used.
func (f *Fabric) resolve() error {
	if f.config.Logger == nil {
		f.config.Logger = slog.New(slog.DiscardHandler)
	}
	if err := f.config.check(document.Node{}); err != nil || f.config.By == Emulator {
		return err
	}
	err := hasNetem()
	f.netem = err == nil
	if f.config.By == Auto && vitrine.IsUnsupported(err) {
		return nil
	}
	return err
}

// middle returns the name of the emulators' namespace of a run.
func middle(run string) string { return runstate.Name(run, "impair") }

// quiet keeps the thread's namespace from answering or forwarding the packets
// that pass through it.
func quiet() error {
	return errors.Join(segment.Quiet(), segment.Sysctl("net/ipv4/ip_forward", "0"),
		segment.Sysctl("net/ipv4/conf/all/arp_ignore", "8"), segment.Sysctl("net/ipv4/conf/default/arp_ignore", "8"))
}

// Attach attaches the instance to the wrapped fabric and then impairs its link,
// if the config says so.
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
		return fail(&vitrine.Unsupported{What: "impaired links of instances in the host's network", Missing: "an interface of the instance's own", Do: "use a fabric of network namespaces, such as bridge"})
	case f.attached[p.Instance] != nil:
		return fail(errors.New("it is already attached"))
	}
	end, err := f.inner.Attach(ctx, p)
	if err != nil {
		return fabric.Endpoint{}, err
	}
	made := &port{at: p, end: end, link: f.config.linkOf(p)}
	f.attached[p.Instance] = made
	err = made.whole()
	if err == nil && !made.link.isPlain() {
		err = f.impair(ctx, made)
	}
	if err == nil {
		err = f.introduce(ctx)
	}
	if err != nil {
		ctx := context.WithoutCancel(ctx)
		return fail(errors.Join(err, f.detach(ctx, p.Instance), f.redoReplaced(ctx)))
	}
	return end, nil
}

// impair cuts the link of an attached instance and joins it again by netem or
// the emulator.
func (f *Fabric) impair(ctx context.Context, made *port) error {
	f.number++
	made.finished = false
	made.splice = &splice{
		run: f.config.Run.ID, middle: netns.Path(f.middle), netns: made.at.NetNS, name: made.end.Interface,
		outer: fmt.Sprintf("o%d", f.number), inner: fmt.Sprintf("i%d", f.number),
	}
	if err := made.splice.cut(); err != nil {
		return err
	}
	if err := made.whole(); err != nil {
		return err
	}
	if made.netem = f.netem && made.link.suitsNetem(); made.netem {
		return netns.Do(netns.Path(f.middle), func() error { return made.splice.byNetem(made.link) })
	}
	running := f.process.Load()
	if running == nil {
		var err error
		if running, err = startProcess(f.config.Command, netns.Path(f.middle), f.config.CPU); err != nil {
			return err
		}
		f.process.Store(running)
	}
	_, err := running.do(ctx, order{Add: &addition{
		Instance: made.at.Instance, Outer: made.splice.outer, Inner: made.splice.inner, Link: made.link, Seed: f.config.seed(made.at.Instance),
	}})
	return err
}

// Mirror mirrors by the wrapped fabric, if that can mirror.
func (f *Fabric) Mirror(ctx context.Context, of, to string) error {
	m, can := f.inner.(fabric.Mirrorer)
	if !can {
		return &vitrine.Unsupported{What: "mirror ports", Missing: "a fabric that can mirror", Do: "use the fabric bridge or ovs"}
	}
	return m.Mirror(ctx, of, to)
}

// Ended returns an error if the emulator or a process of the wrapped fabric has
// ended, with the reason. It does not take mu, which a slow Attach may hold.
func (f *Fabric) Ended() (err error) {
	if p := f.process.Load(); p != nil {
		err = p.ended()
	}
	return errors.Join(err, fabric.Ended(f.inner))
}

// Detach ends the impairment of the instance's link and detaches the instance
// from the wrapped fabric.
func (f *Fabric) Detach(ctx context.Context, instance string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.attached[instance] == nil {
		return nil
	}
	if err := errors.Join(f.detach(ctx, instance), f.redoReplaced(ctx), f.introduce(ctx)); err != nil {
		return fmt.Errorf("detaching %s from an impaired fabric: %w", instance, err)
	}
	return nil
}

func (f *Fabric) detach(ctx context.Context, instance string) error {
	p := f.attached[instance]
	if p.splice != nil {
		f.finish(ctx, instance, p)
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

// redoReplaced impairs links again whose interfaces the wrapped fabric has replaced,
// such as the cable of the remaining instance.
func (f *Fabric) redoReplaced(ctx context.Context) error {
	for name, p := range f.attached {
		err := f.redo(ctx, name, p)
		if err != nil && (p.splice != nil || !segment.IsGone(err)) {
			return fmt.Errorf("impairing the link of %s again: %w", name, err)
		}
	}
	return nil
}

// redo impairs a link again if the fabric has replaced its interface. The new
// interface is in the instance, in place of the veth pair. The instance may be
// gone too.
func (f *Fabric) redo(ctx context.Context, name string, p *port) error {
	if _, err := os.Stat(p.at.NetNS); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if p.splice != nil {
		if stale, err := p.splice.isStale(); err != nil || !stale {
			return err
		}
		f.finish(ctx, name, p)
	}
	if err := p.whole(); err != nil || p.splice == nil {
		return err
	}
	return f.impair(ctx, p)
}

// whole makes the instance's interface send packets of one segment, as on a
// line.
func (p *port) whole() error {
	return netns.Do(p.at.NetNS, func() error { return whole(p.end.Interface) })
}

// finish ends an instance's link and keeps its counts. If the emulator has
// ended, the counts are lost. A second call does nothing.
func (f *Fabric) finish(ctx context.Context, instance string, p *port) {
	if p.finished {
		return
	}
	made, err := f.counts(ctx, p, order{Remove: instance}, instance)
	if err != nil {
		f.config.Logger.Warn("the counts of an impaired link are lost", "instance", instance, "error", err)
		return
	}
	p.finished = true
	f.made = append(f.made, made...)
	for _, m := range made {
		f.log(ctx, m)
	}
}

// log logs the counts of a link in one direction.
func (f *Fabric) log(ctx context.Context, m Made) {
	level, says := slog.LevelInfo, "impaired link"
	if !m.isAsConfigured() {
		level, says = slog.LevelWarn, "an impaired link did not do what servers.impair asks for: "
		if m.By == Netem {
			says += fmt.Sprintf("netem has room for %d packets: offer fewer at once, or use servers.impair.by: emulator, whose room is in bytes", netemLimit)
		} else {
			says += "give the emulator a CPU of its own (servers.impair.cpu)"
		}
	}
	counts := []any{"instance", m.Instance, "way", m.Way, "by", m.By, "asked", m.Asked, "packets", m.Packets, "sent", m.Sent, "lost", m.Lost}
	if m.By == Emulator {
		counts = append(counts, "dropped", m.Dropped, "missed", m.Missed, "refused", m.Refused, "p99 late", m.Lateness.P99)
	}
	f.config.Logger.Log(ctx, level, says, counts...)
}

// counts returns the counts of an instance's link. The emulator gets the order o.
func (f *Fabric) counts(ctx context.Context, p *port, o order, instance string) (made []Made, err error) {
	running := f.process.Load()
	switch {
	case p.netem:
		err = netns.Do(netns.Path(f.middle), func() error {
			made, err = p.splice.netemMade(instance, p.link)
			return err
		})
		return made, err
	case running == nil: // the emulator could not be started
		return nil, nil
	}
	return running.do(ctx, o)
}

// Made returns what became of packets on each link, whether its instance is
// still attached or was detached.
func (f *Fabric) Made(ctx context.Context) ([]Made, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := slices.Clone(f.made)
	for name, p := range f.attached {
		if p.splice == nil || p.finished {
			continue
		}
		made, err := f.counts(ctx, p, order{Result: name}, name)
		if err != nil {
			return nil, err
		}
		all = append(all, made...)
	}
	slices.SortStableFunc(all, func(a, b Made) int { return strings.Compare(a.Instance, b.Instance) })
	return all, nil
}

// Close detaches all instances, ends the emulator, closes the wrapped fabric
// and removes the emulators' namespace.
func (f *Fabric) Close(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	var err error
	for _, name := range slices.Collect(maps.Keys(f.attached)) {
		err = errors.Join(err, f.detach(ctx, name))
	}
	if err != nil { // the fabric's interfaces may still be in the namespace
		return fmt.Errorf("closing an impaired fabric: %w", err)
	}
	if p := f.process.Swap(nil); p != nil {
		if err := p.stop(); err != nil {
			f.config.Logger.Warn("the link emulator ended with an error", "error", err)
		}
	}
	if err := errors.Join(f.inner.Close(ctx), netns.Delete(f.middle)); err != nil {
		return fmt.Errorf("closing an impaired fabric: %w", err)
	}
	f.closed = true
	return nil
}

// Package impair makes the links of any fabric lose, delay, reorder and queue
// packets, as a long or a thin line would, exactly and so that it can be
// repeated.
//
// An instance's link is cut and joined again in a namespace of the run's own,
// by the kernel's netem where there is one and it keeps packets in order, else by
// an emulator: a process of this program, one for all links of a run, that moves
// frames between packet sockets (docs/impair.md).
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

	"vitrine"
	"vitrine/document"
	"vitrine/fabric"
	"vitrine/fabric/segment"
	"vitrine/internal/netns"
)

// A Fabric is another one whose links are impaired.
type Fabric struct {
	config Config
	inner  fabric.Fabric
	middle string // the name of the emulators' namespace
	netem  bool   // the kernel has it, and it may be used

	mu       sync.Mutex
	closed   bool
	process  *process // nil until a link is emulated
	number   int      // of links so far
	attached map[string]*port
	made     []Made // of links that are no more
}

// A port is an attached instance.
type port struct {
	at     fabric.Port
	end    fabric.Endpoint
	link   Link
	splice *splice // nil: its link is left as it is
	netem  bool    // not the emulator
}

var (
	_ fabric.Fabric   = (*Fabric)(nil)
	_ fabric.Mirrorer = (*Fabric)(nil)
)

// Wrap impairs links of a fabric, whose instances must have network namespaces.
// The fabric is closed with it, and by Wrap when it fails. What the config asks
// for and cannot be is a *vitrine.BadInput, netem where the kernel has none a
// *vitrine.Unsupported.
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
		err = fmt.Errorf("making the place of impaired links: %w", err)
		return nil, errors.Join(err, netns.Delete(f.middle), inner.Close(ctx))
	}
	return f, nil
}

// resolve checks the config and finds out whether netem may be used.
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

// Attach attaches the instance to the fabric and, when its link is to be
// impaired, puts what does so into it.
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
		return fail(errors.New("it is attached already"))
	}
	end, err := f.inner.Attach(ctx, p)
	if err != nil {
		return fabric.Endpoint{}, err
	}
	made := &port{at: p, end: end, link: f.config.of(p.Instance)}
	f.attached[p.Instance] = made
	err = made.whole()
	if err == nil && !made.link.plain() {
		err = f.impair(ctx, made)
	}
	if err != nil {
		ctx := context.WithoutCancel(ctx)
		return fail(errors.Join(err, f.detach(ctx, p.Instance), f.again(ctx)))
	}
	return end, nil
}

// impair cuts the link of an instance that is attached and joins it again by netem
// or the emulator.
func (f *Fabric) impair(ctx context.Context, made *port) error {
	f.number++
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
	if f.process == nil {
		p, err := startProcess(f.config.Command, netns.Path(f.middle), f.config.CPU)
		if err != nil {
			return err
		}
		f.process = p
	}
	_, err := f.process.do(ctx, order{Add: &addition{
		Instance: made.at.Instance, Outer: made.splice.outer, Inner: made.splice.inner, Link: made.link, Seed: f.config.seed(made.at.Instance),
	}})
	return err
}

// Mirror asks the fabric.
func (f *Fabric) Mirror(ctx context.Context, of, to string) error {
	m, can := f.inner.(fabric.Mirrorer)
	if !can {
		return &vitrine.Unsupported{What: "mirror ports", Missing: "a fabric that can mirror", Do: "use the fabric bridge or ovs"}
	}
	return m.Mirror(ctx, of, to)
}

// Detach takes out what impairs the instance's link, and the instance off the
// fabric.
func (f *Fabric) Detach(ctx context.Context, instance string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.attached[instance] == nil {
		return nil
	}
	if err := errors.Join(f.detach(ctx, instance), f.again(ctx)); err != nil {
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

// again sees to the links that the fabric has made anew, as the cable of the one
// that stays.
func (f *Fabric) again(ctx context.Context) error {
	for name, p := range f.attached {
		err := f.redo(ctx, name, p)
		if err != nil && (p.splice != nil || !segment.IsGone(err)) {
			return fmt.Errorf("impairing the link of %s again: %w", name, err)
		}
	}
	return nil
}

// redo impairs a link again of which the fabric's interface has gone: the new one
// is where the pair was. The instance may have gone too.
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

// whole has the instance's interface send packets as a line would.
func (p *port) whole() error {
	return netns.Do(p.at.NetNS, func() error { return whole(p.end.Interface) })
}

// finish ends an instance's link and keeps what was made of it. An emulator that
// has ended can say nothing any more.
func (f *Fabric) finish(ctx context.Context, instance string, p *port) {
	made, err := f.ask(ctx, p, order{Remove: instance}, instance)
	if err != nil {
		f.config.Logger.Warn("what an impaired link made is not known", "instance", instance, "error", err)
		return
	}
	f.made = append(f.made, made...)
	for _, m := range made {
		level, says := slog.LevelInfo, "impaired link"
		if !m.asAsked() {
			level, says = slog.LevelWarn, "an impaired link was not as asked: give the emulator a CPU of its own (servers.impair.cpu)"
		}
		f.config.Logger.Log(ctx, level, says, "instance", m.Instance, "way", m.Way, "by", m.By, "asked", m.Asked, "packets", m.Packets, "sent", m.Sent,
			"lost", m.Lost, "dropped", m.Dropped, "missed", m.Missed, "refused", m.Refused, "p99 late", m.Lateness.P99)
	}
}

// ask asks netem or the emulator what an instance's link made.
func (f *Fabric) ask(ctx context.Context, p *port, o order, instance string) (made []Made, err error) {
	switch {
	case p.netem:
		err = netns.Do(netns.Path(f.middle), func() error {
			made, err = p.splice.netemMade(instance, p.link)
			return err
		})
		return made, err
	case f.process == nil: // it could not be started
		return nil, nil
	}
	return f.process.do(ctx, o)
}

// Made says what became of packets, link by link: of those that were detached,
// and of those that are attached.
func (f *Fabric) Made(ctx context.Context) ([]Made, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := slices.Clone(f.made)
	for name, p := range f.attached {
		if p.splice == nil {
			continue
		}
		made, err := f.ask(ctx, p, order{Result: name}, name)
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
	var err error
	for _, name := range slices.Collect(maps.Keys(f.attached)) {
		err = errors.Join(err, f.detach(ctx, name))
	}
	if err != nil { // the fabric's interfaces may be in the namespace still
		return fmt.Errorf("closing an impaired fabric: %w", err)
	}
	if f.process != nil {
		if err := f.process.stop(); err != nil {
			f.config.Logger.Warn("the link emulator did not end well", "error", err)
		}
		f.process = nil
	}
	if err := errors.Join(f.inner.Close(ctx), netns.Delete(f.middle)); err != nil {
		return fmt.Errorf("closing an impaired fabric: %w", err)
	}
	f.closed = true
	return nil
}

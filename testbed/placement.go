package testbed

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"vitrine/fabric"
	"vitrine/substrate"
)

// A Spec is one instance to place.
type Spec struct {
	substrate.Spec      // the placement fills in Run, CFSPeriod and Dir
	OnHost         bool // runs on the host, beside the function
	Unwired        bool // is attached to no fabric
}

// A Placement is a set of instances on a site.
//
// Place -> (Start -> Await -> Stop, any number of times) -> Remove.
type Placement struct {
	Instances []*Instance // in the order of the specs

	site    *Site
	endLogs func() error // nil: the logs are not bounded
}

// Place creates all instances at once and then attaches them to the fabric in order, so that their
// addresses have the same order. Each instance has its own folder below dir, with its log. Nothing
// runs in the instances yet. If Place fails, it leaves nothing behind.
func (s *Site) Place(ctx context.Context, dir string, specs ...Spec) (_ *Placement, err error) {
	p := &Placement{site: s}
	s.mu.Lock()
	s.placed = append(s.placed, p)
	s.mu.Unlock()
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Remove(context.WithoutCancel(ctx)))
		}
	}()
	group, gctx := errgroup.WithContext(ctx)
	for _, sp := range specs {
		sp.Run, sp.CFSPeriod, sp.Dir = s.config.Run, s.choice.CFSPeriod, filepath.Join(dir, sp.Name)
		in := &Instance{Spec: sp}
		p.Instances = append(p.Instances, in)
		group.Go(func() error { return in.create(gctx, s) })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for _, in := range p.Instances {
		if in.Unwired || s.fabric == nil {
			continue
		}
		if in.Endpoint, err = s.fabric.Attach(ctx, fabric.Port{Instance: in.Name, Component: in.Component, NetNS: in.NetNS()}); err != nil {
			return nil, fmt.Errorf("attach %s: %w", in.Name, err)
		}
	}
	p.endLogs = p.boundLogs()
	return p, nil
}

// Ended returns an error that names an instance that has ended, with the end of its log. It
// returns nil if no instance has ended.
func (p *Placement) Ended() error {
	for _, in := range p.Instances {
		if err := in.Ended(); err != nil {
			return err
		}
	}
	return nil
}

// Await returns when done is closed or the context ends. If an instance ends before that, Await
// returns the reason at once. All instances must have been started.
func (p *Placement) Await(ctx context.Context, done <-chan struct{}) error {
	over, stop := context.WithCancel(ctx)
	defer stop()
	var watchers sync.WaitGroup
	for _, in := range p.Instances {
		watchers.Go(func() {
			select {
			case <-in.Done():
				stop()
			case <-over.Done():
			}
		})
	}
	select {
	case <-done:
	case <-over.Done():
	}
	stop()
	watchers.Wait()
	return p.Ended()
}

// Stop ends the processes in the instances by SIGTERM, and by SIGKILL after grace. The instances
// stay, with their addresses and folders.
func (p *Placement) Stop(ctx context.Context, grace time.Duration) error {
	return p.each(func(in *Instance) error { return in.Stop(ctx, grace) })
}

// Remove stops, detaches and removes the instances. Their logs stay. If it cannot remove an
// instance, it still removes the others. It is idempotent.
func (p *Placement) Remove(ctx context.Context) error {
	err := p.each(func(in *Instance) error { return in.remove(ctx, p.site.fabric) })
	if err != nil {
		return err
	}
	if p.endLogs != nil {
		err, p.endLogs = p.endLogs(), nil
	}
	p.site.forget(p)
	return err
}

// each calls f for all instances at once and returns all errors.
func (p *Placement) each(f func(*Instance) error) error {
	errs := make([]error, len(p.Instances))
	var group errgroup.Group
	for i, in := range p.Instances {
		group.Go(func() error {
			errs[i] = f(in)
			return nil
		})
	}
	_ = group.Wait() // errs has every error, the group only the first
	return errors.Join(errs...)
}

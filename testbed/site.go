package testbed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"vitrine/fabric"
	"vitrine/spec"
	"vitrine/substrate"
)

// A Site is one choice of substrate and fabric, with the instances placed on it. Its methods may
// be called from any goroutine.
type Site struct {
	Accelerator string // of the function's virtual machines, "kvm" or "tcg"; empty: it has none

	config   Config
	choice   spec.Choice
	function substrate.Substrate // nil: the site has the host alone
	host     substrate.Substrate
	fabric   fabric.Fabric // nil: instances are not wired

	mu     sync.Mutex
	placed []*Placement // in the order in which they were placed
}

// Open makes the back ends of one choice. Without a substrate, the site is only the host. Without
// a fabric, its instances are unwired. Open returns a *vitrine.Unsupported if this host lacks
// something for the choice. If Open fails, it leaves nothing behind.
func Open(ctx context.Context, c Config, choice spec.Choice) (_ *Site, err error) {
	s := &Site{config: c, choice: choice}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close(context.WithoutCancel(ctx)))
		}
	}()
	// The site owns every back end that was made without an error, and closes it.
	if choice.Substrate != "" {
		function, err := c.Substrate(ctx, choice, c.Parts[choice.Substrate])
		if err != nil {
			return nil, fmt.Errorf("substrate %s: %w", choice.Substrate, err)
		}
		s.function = function
		if s.Accelerator, err = substrate.AcceleratorOf(ctx, function); err != nil {
			return nil, fmt.Errorf("substrate %s: %w", choice.Substrate, err)
		}
	}
	host, err := c.Host(ctx, choice)
	if err != nil {
		return nil, fmt.Errorf("the host as a substrate: %w", err)
	}
	s.host = host
	if choice.Fabric != "" {
		wiring, err := c.Fabric(ctx, choice, c.Parts[choice.Fabric])
		if err != nil {
			return nil, fmt.Errorf("fabric %s: %w", choice.Fabric, err)
		}
		s.fabric = wiring
	}
	return s, nil
}

// Substrate returns the substrate of the function's instances; nil if the site is only the host.
func (s *Site) Substrate() substrate.Substrate { return s.function }

// Fabric returns the fabric that wires the instances; nil if they are unwired.
func (s *Site) Fabric() fabric.Fabric { return s.fabric }

// FabricEnded returns an error if a process that the fabric's links need has ended. The fabric
// does not recover from that.
func (s *Site) FabricEnded() error { return fabric.Ended(s.fabric) }

// Close removes the remaining placements, the last one first, and then closes the back ends. It
// may be called more than once.
func (s *Site) Close(ctx context.Context) error {
	s.mu.Lock()
	placed := slices.Clone(s.placed)
	s.mu.Unlock()
	var errs []error
	for _, p := range slices.Backward(placed) {
		errs = append(errs, p.Remove(ctx))
	}
	if s.fabric != nil {
		errs = append(errs, s.fabric.Close(ctx))
	}
	for _, sub := range []substrate.Substrate{s.function, s.host} {
		if sub != nil {
			errs = append(errs, sub.Close(ctx))
		}
	}
	return errors.Join(errs...)
}

// forget drops a removed placement.
func (s *Site) forget(p *Placement) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.placed = slices.DeleteFunc(s.placed, func(other *Placement) bool { return other == p })
}

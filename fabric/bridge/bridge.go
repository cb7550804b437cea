// Package bridge wires instances that have network namespaces by a bridge. The
// bridge is in a network namespace of the run. So no interface, address, route
// or rule of the host's own network is touched, and no two runs meet.
package bridge

import (
	"context"

	"vitrine"
	"vitrine/fabric/segment"
	"vitrine/internal/runstate"
)

// Config is the part servers.bridge of a deployment.
type Config struct {
	Run             *runstate.Run `yaml:"-" json:"-"` // the run whose instances are wired
	segment.Options `yaml:",inline"`
}

func kind() segment.Kind {
	return segment.Kind{Name: "bridge", Needs: "CONFIG_BRIDGE, CONFIG_VETH", Do: "modprobe bridge veth, or use the fabric loopback"}
}

// New makes the bridge. Without the privilege, or without the kernel's bridge
// and veth, the error is a *vitrine.Unsupported.
func New(config Config) (*segment.Segment, error) {
	return segment.New(segment.Config{Run: config.Run, Kind: kind(), Options: config.Options}, new(wiring))
}

// Check reports whether this host supports bridge fabrics.
func Check(context.Context) []vitrine.Check {
	return []vitrine.Check{segment.Check(kind(), new(wiring), "veth and bridge", "instances at a bridge, 198.18.0.0/16")}
}

// wiring is a bridge, with a veth pair for each instance.
type wiring struct {
	bridge int // index of the bridge's interface
}

func (w *wiring) Make(s *segment.Segment) (err error) {
	w.bridge, err = s.Bridge("br0")
	return err
}

func (w *wiring) Join(s *segment.Segment, end *segment.End) error { return s.Pair(end, w.bridge) }

func (w *wiring) Cut(s *segment.Segment, end *segment.End) error { return s.Unpair(end) }

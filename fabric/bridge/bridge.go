// Package bridge wires instances that have network namespaces by a bridge that
// is itself in a namespace, one that belongs to the run: no interface, address,
// route or rule of the host's own network is touched, and no two runs meet.
package bridge

import (
	"context"

	"vitrine"
	"vitrine/fabric/segment"
	"vitrine/internal/runstate"
)

// NetworkingModel is what the fabric is, in the words of
// draft-ietf-bmwg-containerized-infra.
const NetworkingModel = "kernel-space: the kernel's bridge"

// Config is what a bridge fabric needs.
type Config struct {
	Run             *runstate.Run `yaml:"-" json:"-"` // whose instances it wires
	segment.Options `yaml:",inline"`
}

func kind() segment.Kind {
	return segment.Kind{Name: "bridge", Needs: "CONFIG_BRIDGE, CONFIG_VETH", Do: "modprobe bridge veth, or use the fabric loopback"}
}

// New makes the bridge. Without the privilege, or without the kernel's bridges,
// it is a *vitrine.Unsupported.
func New(config Config) (*segment.Segment, error) {
	return segment.New(segment.Config{Run: config.Run, Kind: kind(), Options: config.Options}, new(wiring))
}

// Check says whether this host can have bridge fabrics.
func Check(context.Context) []vitrine.Check {
	return []vitrine.Check{segment.Check(kind(), new(wiring), "veth and bridge", "instances at a bridge, 198.18.0.0/16")}
}

// wiring is a bridge, and a pair of interfaces for each instance.
type wiring struct {
	bridge int // index of the bridge's interface
}

// Make makes the bridge and brings it up.
func (w *wiring) Make(s *segment.Segment) (err error) {
	w.bridge, err = s.Bridge("br0")
	return err
}

func (w *wiring) Join(s *segment.Segment, end *segment.End) error { return s.Pair(end, w.bridge) }

func (w *wiring) Cut(s *segment.Segment, end *segment.End) error { return s.Unpair(end) }

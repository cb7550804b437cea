// Package testbed runs instances. A Site is one choice of substrate and fabric. A
// Placement is a set of instances on a site. They are created, attached, started,
// awaited, logged and torn down, in that order. Packages that compose measurements
// or functions from instances (trial, measure, measure/chain) use this package and
// never name a back end.
package testbed

import (
	"context"

	"vitrine/document"
	"vitrine/fabric"
	"vitrine/spec"
	"vitrine/substrate"
)

// A Config has the parameters with which all sites of a run are opened.
type Config struct {
	// Substrate makes the choice's substrate. part has the substrate's own options.
	Substrate func(ctx context.Context, choice spec.Choice, part document.Node) (substrate.Substrate, error)
	// Host makes the substrate for generators and senders, which run on the host beside the function.
	Host func(ctx context.Context, choice spec.Choice) (substrate.Substrate, error)
	// Fabric makes the choice's fabric. part has the fabric's own options.
	Fabric func(ctx context.Context, choice spec.Choice, part document.Node) (fabric.Fabric, error)

	Parts map[string]document.Node // each back end's own options, by its name
	Run   string                   // label of the run, which everything on a site has
	Self  string                   // path of this executable, which instances may run

	// LogLimit is the number of bytes of disk for an instance's log; 0: 64 MiB. If a log is
	// longer, its middle is dropped, and the log has the number of dropped bytes. On a file system
	// that cannot free a part of a file, logs have no bound.
	LogLimit int64
}

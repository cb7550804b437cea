// Package testbed runs instances. A Site is one choice of substrate and fabric;
// a Placement is a set of instances on a site, which are created, attached,
// started, awaited, logged and torn down in that order. Whoever composes
// measurements or functions from instances (trial, measure, measure/chain) does
// so through this package and never knows a back end by name.
package testbed

import (
	"context"

	"vitrine/document"
	"vitrine/fabric"
	"vitrine/spec"
	"vitrine/substrate"
)

// A Config is what all sites of a run are opened with.
type Config struct {
	// Substrate makes the choice's substrate; part holds its own options.
	Substrate func(ctx context.Context, choice spec.Choice, part document.Node) (substrate.Substrate, error)
	// Host makes the substrate of what runs on the host beside the function: generators, senders.
	Host func(ctx context.Context, choice spec.Choice) (substrate.Substrate, error)
	// Fabric makes the choice's fabric; part holds its own options.
	Fabric func(ctx context.Context, choice spec.Choice, part document.Node) (fabric.Fabric, error)

	Parts map[string]document.Node // each back end's own options, by its name
	CPUs  CPUs                     // who may run where
	Run   string                   // the run's label: everything on a site carries it
	Self  string                   // path of this executable, which instances may run
}

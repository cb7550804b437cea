package testbed_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"vitrine"
	"vitrine/fabric"
	"vitrine/fabric/bridge"
	"vitrine/fabric/fabrictest"
	"vitrine/fabric/loopback"
	"vitrine/internal/runstate"
	"vitrine/spec"
	"vitrine/substrate"
	"vitrine/substrate/docker"
	"vitrine/substrate/docker/dockertest"
	"vitrine/substrate/process"
	"vitrine/substrate/substratetest"
	"vitrine/testbed/testbedtest"
)

func processes(run *runstate.Run, network string) func(context.Context) (substrate.Substrate, error) {
	return func(context.Context) (substrate.Substrate, error) {
		return process.New(process.Config{Run: run, Environ: os.Environ(), Network: network})
	}
}

func onBridge(run *runstate.Run) func(context.Context) (fabric.Fabric, error) {
	return func(context.Context) (fabric.Fabric, error) {
		f, err := bridge.New(bridge.Config{Run: run})
		if err != nil {
			return nil, err
		}
		return f, nil
	}
}

func left(run *runstate.Run) func() ([]string, error) {
	return func() ([]string, error) { return substratetest.Left(run.ID) }
}

func TestProcessesOnBridge(t *testing.T) {
	testbedtest.Run(t, func(t *testing.T) testbedtest.Harness {
		run := fabrictest.NewRun(t, t.TempDir())
		place := processes(run, process.NetworkAuto)
		return testbedtest.Harness{
			Choice: spec.Choice{Substrate: "process", Fabric: "bridge"}, Left: left(run),
			Config: testbedtest.Single(run.ID, place, place, onBridge(run)),
		}
	})
}

func TestProcessesOnLoopback(t *testing.T) {
	testbedtest.Run(t, func(t *testing.T) testbedtest.Harness {
		run := fabrictest.NewRun(t, t.TempDir())
		place := processes(run, process.NetworkHost)
		return testbedtest.Harness{
			Choice: spec.Choice{Substrate: "process", Fabric: "loopback"}, Left: left(run),
			Config: testbedtest.Single(run.ID, place, place, func(context.Context) (fabric.Fabric, error) {
				return loopback.New(loopback.Config{Run: run}), nil
			}),
		}
	})
}

func TestDockerOnBridge(t *testing.T) {
	host := dockertest.Start(t)
	testbedtest.Run(t, func(t *testing.T) testbedtest.Harness {
		root := t.TempDir()
		run := fabrictest.NewRun(t, root)
		engine := func(ctx context.Context) (substrate.Substrate, error) {
			s, err := docker.New(ctx, docker.Config{Host: host, Runs: root, Run: run})
			if vitrine.IsUnsupported(err) {
				t.Skip(err)
			}
			if err != nil {
				return nil, err
			}
			return s, nil
		}
		return testbedtest.Harness{
			Choice: spec.Choice{Substrate: "docker", Fabric: "bridge"},
			Left: func() ([]string, error) {
				containers, err := exec.Command("docker", "--host", host, "ps", "--all", "--quiet", "--filter", "label=vitrine.run="+run.ID).Output()
				of, otherErr := substratetest.Left(run.ID)
				return append(of, strings.Fields(string(containers))...), errors.Join(err, otherErr)
			},
			Config: testbedtest.Single(run.ID, engine, processes(run, process.NetworkAuto), onBridge(run)),
		}
	})
}

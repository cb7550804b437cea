package testbed_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"vitrine"
	"vitrine/document"
	"vitrine/fabric"
	"vitrine/fabric/fabrictest"
	"vitrine/fabric/loopback"
	"vitrine/spec"
	"vitrine/substrate"
	"vitrine/substrate/docker"
	"vitrine/substrate/docker/dockertest"
	"vitrine/substrate/process"
	"vitrine/substrate/substratetest"
	"vitrine/testbed/testbedtest"
)

func TestProcessesOnBridge(t *testing.T) {
	testbedtest.Run(t, func(t *testing.T) testbedtest.Harness {
		run := fabrictest.NewRun(t, t.TempDir())
		return testbedtest.Harness{
			Config: testbedtest.Local(run), Choice: spec.Choice{Substrate: "process", Fabric: "bridge"},
			Left: func() ([]string, error) { return substratetest.Left(run.ID) },
		}
	})
}

func TestProcessesOnLoopback(t *testing.T) {
	testbedtest.Run(t, func(t *testing.T) testbedtest.Harness {
		run := fabrictest.NewRun(t, t.TempDir())
		c := testbedtest.Local(run)
		c.Host = func(context.Context, spec.Choice) (substrate.Substrate, error) {
			return process.New(process.Config{Run: run, Environ: os.Environ(), Network: process.NetworkHost})
		}
		c.Substrate = func(ctx context.Context, choice spec.Choice, _ document.Node) (substrate.Substrate, error) {
			return c.Host(ctx, choice)
		}
		c.Fabric = func(context.Context, spec.Choice, document.Node) (fabric.Fabric, error) {
			return loopback.New(loopback.Config{Run: run}), nil
		}
		return testbedtest.Harness{
			Config: c, Choice: spec.Choice{Substrate: "process", Fabric: "loopback"},
			Left: func() ([]string, error) { return substratetest.Left(run.ID) },
		}
	})
}

func TestDockerOnBridge(t *testing.T) {
	host := dockertest.Start(t)
	testbedtest.Run(t, func(t *testing.T) testbedtest.Harness {
		root := t.TempDir()
		run := fabrictest.NewRun(t, root)
		c := testbedtest.Local(run)
		c.Substrate = func(ctx context.Context, _ spec.Choice, _ document.Node) (substrate.Substrate, error) {
			s, err := docker.New(ctx, docker.Config{Host: host, Runs: root, Run: run})
			if vitrine.IsUnsupported(err) {
				t.Skip(err)
			}
			return s, err
		}
		return testbedtest.Harness{
			Config: c, Choice: spec.Choice{Substrate: "docker", Fabric: "bridge"},
			Left: func() ([]string, error) {
				containers, err := exec.Command("docker", "--host", host, "ps", "--all", "--quiet", "--filter", "label=vitrine.run="+run.ID).Output()
				left, otherErr := substratetest.Left(run.ID)
				return append(left, strings.Fields(string(containers))...), errors.Join(err, otherErr)
			},
		}
	})
}

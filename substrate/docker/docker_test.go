package docker

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"

	"vitrine/fabric/fabrictest"
	"vitrine/internal/hosttest"
	"vitrine/internal/runstate"
	"vitrine/substrate/docker/dockertest"
	"vitrine/substrate/substratetest"
)

func TestDockerSubstrate(t *testing.T) {
	t.Setenv("DOCKER_HOST", dockertest.Start(t)) // the suite runs this binary again
	substratetest.Run(t, openHarness)
}

func openHarness(t *testing.T, root string) substratetest.Harness {
	t.Helper()
	s, run := open(t, root)
	return substratetest.Harness{Substrate: s, Run: run, Left: func(run string) ([]string, error) { return labelled(t, run) }}
}

// open connects to the test's engine, with a new run.
func open(t *testing.T, root string) (*Substrate, *runstate.Run) {
	t.Helper()
	s, err := New(t.Context(), Config{Host: dockertest.Start(t), Runs: root})
	hosttest.Need(t, err)
	return s, fabrictest.NewRun(t, root)
}

// labelled lists the containers and images with the run's label.
func labelled(t *testing.T, run string) ([]string, error) {
	t.Helper()
	e, err := dialEngine(context.Background(), os.Getenv("DOCKER_HOST"))
	if err != nil {
		return nil, err
	}
	defer e.api.Close()
	containers, err := e.containersWith(context.Background(), labelRun+"="+run)
	if err != nil {
		return nil, err
	}
	var left []string
	for _, c := range containers {
		left = append(left, fmt.Sprint("container ", c.Names))
	}
	images, err := e.api.ImageList(context.Background(), image.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", labelRun+"="+run))})
	if err != nil {
		return nil, err
	}
	for _, i := range images {
		left = append(left, fmt.Sprint("image ", i.RepoTags, i.ID))
	}
	return left, nil
}

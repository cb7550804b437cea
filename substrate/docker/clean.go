package docker

import (
	"context"
	"errors"
	"io/fs"
	"net/url"
	"slices"
	"strings"
	"syscall"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"

	"vitrine/internal/runstate"
)

// engineKind is the kind of record for the engines that a run uses. A record's value is the
// engine's address.
const engineKind = "docker-engine"

// engineRecord returns the name of this engine's record. It must be a file name.
func (e *engine) engineRecord() string { return url.PathEscape(e.host) }

// recordEngine records that the run uses this engine.
func (s *Substrate) recordEngine() error {
	s.recording.Lock()
	defer s.recording.Unlock()
	if s.config.Run == nil || s.recorded {
		return nil
	}
	err := s.config.Run.Record(engineKind, s.engineRecord(), []byte(s.host))
	s.recorded = err == nil
	return err
}

// eraseEngine records that nothing of the run is left on this engine.
func (s *Substrate) eraseEngine() error {
	if s.config.Run == nil {
		return nil
	}
	return s.config.Run.Erase(engineKind, s.engineRecord())
}

// A Cleaner cleans up after dead runs on the engines that they recorded. A Substrate cleans its
// own engine only, and a deployment may name another one.
type Cleaner struct{ Root string } // of the runs

// Clean removes the containers and images of dead runs. It forgets an engine that is not there
// any more, because no container of it runs.
func (c Cleaner) Clean(ctx context.Context) (removed []string, err error) {
	return runstate.EachDead(c.Root, func(run string) (removed []string, err error) {
		_, err = runstate.Undo(c.Root, run, engineKind, func(_ string, host []byte) (string, error) {
			s, err := New(ctx, Config{Host: string(host), Runs: c.Root})
			if hasEnded(string(host), err) {
				return "", nil
			}
			if err != nil {
				return "", err
			}
			some, err := s.Clean(ctx)
			removed = append(removed, some...)
			return "", errors.Join(err, s.Close(ctx))
		})
		return removed, err
	})
}

// hasEnded reports whether a failed connection shows that the engine at host does not run any more.
// An engine on another host may only be restarting.
func hasEnded(host string, err error) bool {
	return strings.HasPrefix(host, "unix:") && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED))
}

// Clean removes the containers and images of runs that are no longer alive. It considers
// only runs that are recorded in the same folder of runs and whose containers run on this
// host. It leaves other users' runs alone, and everything without our labels.
func (s *Substrate) Clean(ctx context.Context) (removed []string, err error) {
	containers, err := s.containersWith(ctx, labelInstance, labelRoot+"="+s.config.Runs)
	if err != nil {
		return nil, err
	}
	elsewhere, err := s.elsewhere(ctx, containers)
	if err != nil {
		return nil, err
	}
	dead := func(labels map[string]string) bool {
		return !elsewhere[labels[labelRun]] && !runstate.Alive(s.config.Runs, labels[labelRun])
	}
	var failed error
	for _, c := range containers {
		if !dead(c.Labels) {
			continue
		}
		if err := s.removeContainer(ctx, c.ID); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		removed = append(removed, "docker container "+nameOf(c.Names, c.ID))
	}
	made, err := s.cleanImages(ctx, dead)
	loaded, loadErr := s.cleanLoaded(ctx)
	return slices.Concat(removed, made, loaded), errors.Join(failed, err, loadErr)
}

// elsewhere returns the runs whose containers run, but not on this host. Such a host has
// its own folder of runs under the same name, which says whether they are alive.
func (s *Substrate) elsewhere(ctx context.Context, containers []container.Summary) (map[string]bool, error) {
	elsewhere := make(map[string]bool)
	for _, c := range containers {
		run := c.Labels[labelRun]
		remote, known := elsewhere[run]
		if known && !remote || runstate.Alive(s.config.Runs, run) {
			continue
		}
		state, err := s.inspect(ctx, c.ID)
		if cerrdefs.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if state.Pid != 0 {
			elsewhere[run] = !isHere(c.ID, state.Pid)
		}
	}
	return elsewhere, nil
}

// cleanImages removes the images that dead runs made. The engine lists a parent image only
// after its child is gone, so cleanImages repeats until it removes no more.
func (s *Substrate) cleanImages(ctx context.Context, dead func(labels map[string]string) bool) (removed []string, err error) {
	for more := true; more; {
		images, err := call(ctx, s.engine, "list images", func(ctx context.Context) ([]image.Summary, error) {
			return s.api.ImageList(ctx, image.ListOptions{Filters: filters.NewArgs(
				filters.Arg("label", labelRun), filters.Arg("label", labelRoot+"="+s.config.Runs))})
		})
		if err != nil {
			return removed, err
		}
		var failed error
		more = false
		for _, i := range images {
			if !dead(i.Labels) {
				continue
			}
			switch err := s.removeImage(ctx, i.ID); {
			case err == nil:
				removed, more = append(removed, "docker image "+nameOf(i.RepoTags, i.ID)), true
			case !cerrdefs.IsConflict(err): // a live run uses it
				failed = errors.Join(failed, err)
			}
		}
		if failed != nil {
			return removed, failed
		}
	}
	return removed, nil
}

func nameOf(names []string, id string) string {
	if len(names) > 0 {
		return names[0]
	}
	return id
}

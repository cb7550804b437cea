package docker

import (
	"context"
	"errors"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"

	"vitrine/internal/runs"
)

// Clean removes the containers and images of runs that are no longer alive. A
// run is ours to judge when it was known in the same folder of runs; those of
// other users, and whatever carries no label of ours, are left alone.
func (s *Substrate) Clean(ctx context.Context) (removed []string, err error) {
	containers, err := s.containersWith(ctx, labelInstance, labelRoot+"="+s.config.Runs)
	if err != nil {
		return nil, err
	}
	var failed error
	for _, c := range containers {
		if runs.Alive(s.config.Runs, c.Labels[labelRun]) {
			continue
		}
		if err := s.removeContainer(ctx, c.ID); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		removed = append(removed, "docker container "+nameOf(c.Names, c.ID))
	}
	images, err := call(ctx, s.engine, "list images", func(ctx context.Context) ([]image.Summary, error) {
		return s.api.ImageList(ctx, image.ListOptions{Filters: filters.NewArgs(
			filters.Arg("label", labelRun), filters.Arg("label", labelRoot+"="+s.config.Runs))})
	})
	failed = errors.Join(failed, err)
	for _, i := range images {
		if runs.Alive(s.config.Runs, i.Labels[labelRun]) {
			continue
		}
		switch err := s.removeImage(ctx, i.ID); {
		case err == nil:
			removed = append(removed, "docker image "+nameOf(i.RepoTags, i.ID))
		case !cerrdefs.IsConflict(err): // a live run uses it
			failed = errors.Join(failed, err)
		}
	}
	return removed, failed
}

func nameOf(names []string, id string) string {
	if len(names) > 0 {
		return names[0]
	}
	return id
}

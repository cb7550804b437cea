package process

import (
	"context"
	"fmt"
	"slices"

	"vitrine/internal/netns"
	"vitrine/internal/runstate"
)

// Clean removes what dead runs left: their processes, cgroups and network namespaces,
// including those that a fabric made. The runs' folders stay, because other back ends may
// need their records to clean: see runstate.Forget.
func (s *Substrate) Clean(ctx context.Context) (removed []string, err error) {
	root := s.config.Run.Root
	return runstate.EachDead(root, func(run string) ([]string, error) { return s.clean(ctx, root, run) })
}

func (s *Substrate) clean(ctx context.Context, root, run string) (removed []string, err error) {
	if s.groups != nil {
		groups, err := s.groups.Groups(run)
		if err != nil {
			return nil, err
		}
		if len(groups) > 0 {
			if err := s.groups.RemoveRun(ctx, run); err != nil {
				return nil, err
			}
			for _, group := range groups {
				removed = append(removed, "cgroup "+group)
			}
		}
	}
	// The code above leaves cgroups that this process may not use. The run then stays on record.
	_, err = runstate.Undo(root, run, groupKind, func(_ string, value []byte) (string, error) { return "", groupsGone(value) })
	if err != nil {
		return removed, err
	}
	ended, err := runstate.Undo(root, run, recordKind, func(name string, value []byte) (string, error) {
		r, err := parseRecord(value)
		if err != nil {
			return "", err
		}
		n, err := r.end(ctx)
		if n == 0 {
			return "", err
		}
		return fmt.Sprintf("%d processes of %s of run %s", n, name, run), err
	})
	if removed = append(removed, ended...); err != nil {
		return removed, err
	}
	slices.Sort(removed)
	namespaces, err := netns.List(runstate.Name(run, ""))
	if err != nil {
		return removed, err
	}
	for _, name := range namespaces {
		if err := netns.Delete(name); err != nil {
			return removed, err
		}
		removed = append(removed, "network namespace "+name)
	}
	return removed, nil
}

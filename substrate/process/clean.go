package process

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"vitrine/internal/netns"
	"vitrine/internal/runs"
)

// Clean removes what dead runs left: their processes, cgroups and network
// namespaces, a fabric's too. The runs' folders, which other back ends may
// clean by too, stay: see runs.Forget.
func (s *Substrate) Clean(ctx context.Context) (removed []string, err error) {
	root := s.config.Run.Root
	dead, err := runs.Dead(root)
	if err != nil {
		return nil, err
	}
	for _, run := range dead {
		some, cleaning := s.clean(ctx, root, run)
		removed = append(removed, some...)
		if cleaning != nil {
			err = errors.Join(err, fmt.Errorf("cleaning after run %s: %w", run, cleaning))
		}
	}
	return removed, err
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
	records, err := runs.Records(root, run, recordKind)
	if err != nil {
		return removed, err
	}
	for name, value := range records {
		r, err := parseRecord(value)
		if err != nil {
			return removed, err
		}
		n, err := r.end(ctx)
		if err == nil {
			err = runs.Erase(root, run, recordKind, name)
		}
		if n > 0 {
			removed = append(removed, fmt.Sprintf("%d processes of %s of run %s", n, name, run))
		}
		if err != nil {
			return removed, err
		}
	}
	slices.Sort(removed)
	namespaces, err := netns.List(namespace(run, ""))
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

package report

import (
	"fmt"
	"slices"
	"strings"

	"vitrine/result"
)

// differences says how the run differs from the report's first run, because that may be why capacities
// differ. It is empty if nothing on record differs.
func (r *run) differences() string {
	first := r.set.runs[0]
	then, now := first.Manifest, r.Manifest
	all := then.Differences(now)
	if was, is := checkText(then), checkText(now); was != is {
		all = append(all, result.Difference{Then: was, Now: is})
	}
	var parts []string
	for _, d := range all {
		parts = append(parts, d.Now+" instead of "+d.Then)
	}
	if files := otherFiles(then.Specs, now.Specs); len(files) > 0 {
		parts = append(parts, "other files: "+strings.Join(files, ", "))
	}
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprintf("%s differs from %s: %s", r.name, first.name, plain(strings.Join(parts, "; ")))
}

// checkText says which trials of a run count as disturbed.
func checkText(m result.Manifest) string {
	if m.Slowdown == 0 {
		return "trials not checked (--shared-cpus)"
	}
	return fmt.Sprintf("--slowdown %g", m.Slowdown)
}

// otherFiles returns the roles of the files that the runs do not share.
func otherFiles(then, now []result.Spec) (roles []string) {
	digests := func(specs []result.Spec) map[string]string {
		of := map[string]string{}
		for _, s := range specs {
			of[s.Role] = s.SHA256
		}
		return of
	}
	was, is := digests(then), digests(now)
	for _, s := range slices.Concat(then, now) {
		if was[s.Role] != is[s.Role] && !slices.Contains(roles, s.Role) {
			roles = append(roles, s.Role)
		}
	}
	return roles
}

package report

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"vitrine/result"
)

// Text writes what a run found in a few lines: the optimal sizing, what it
// carries, its bottleneck, why, and where the report is.
func Text(w io.Writer, d *result.Data) error {
	s, err := newSet([]*result.Data{d})
	if err != nil {
		return err
	}
	r := s.runs[0]
	if r.measured() {
		if err := r.sections(w); err != nil {
			return err
		}
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(t, "%s\t%s\n", name, strings.Join(strings.Fields(value), " "))
		}
	}
	line("mark", s.mark())
	switch x := r.best(); {
	case r.measured():
		line("measured", r.vnf())
	case x != nil:
		c := x.capacity()
		name := "optimal sizing"
		if r.Summary.Partial {
			name = "best so far"
		}
		line(name, fmt.Sprintf("%s (%s)", x.sizing, sizeText(x.summary)))
		capacity := fmt.Sprintf("%s %s at success ratio %s, 95%% interval %s", capacityText(c), s.unit, shortest(c.Threshold), intervalText(c))
		if why := censoredText(c, s.unit); why != "" {
			capacity += " (" + why + ")"
		}
		line("capacity", capacity)
		bottleneck := "not known"
		if z := x.summary; z.Bottleneck != "" {
			bottleneck = z.Bottleneck
			if used, ok := z.Utilization[z.Bottleneck]; ok {
				bottleneck += fmt.Sprintf(", %s used at capacity: %s", s.resourceName(), percent(used))
			}
		}
		line("bottleneck", bottleneck)
		line("why", r.Summary.Optimal.Why)
	default:
		line("optimal sizing", "none found")
	}
	switch {
	case r.measured() && !r.Manifest.Finished.IsZero():
	case !r.finished():
		line("stopped", "the run is not finished: continue it with --resume")
	default:
		line("stopped", r.Summary.StoppedBecause)
	}
	invalid := 0
	for _, o := range r.Outcomes {
		if !o.Valid {
			invalid++
		}
	}
	if r.measured() {
		line("trials", fmt.Sprintf("%d, %d invalid", len(r.Outcomes), invalid))
	} else {
		line("trials", fmt.Sprintf("%d of %d sizes, %d invalid", len(r.Outcomes), len(r.subjects), invalid))
	}
	path := filepath.Join(d.Dir, PageFile)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		path = "not written: vitrine report " + d.Dir
	}
	line("report", path)
	if err := t.Flush(); err != nil {
		return fmt.Errorf("writing the summary: %w", err)
	}
	return nil
}

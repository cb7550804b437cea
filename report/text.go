package report

import (
	"cmp"
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

// Text writes the result of a run in a few lines: the optimal sizing, its capacity, its
// bottleneck, the reason, and the path of the report.
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
	t := summary{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	t.line("mark", s.mark())
	switch x := r.best(); {
	case r.measured():
		t.line("measured", r.vnf())
	case x != nil:
		s.optimal(t, x)
	default:
		t.line("optimal sizing", "none found")
	}
	switch {
	case r.measured() && !r.Manifest.Finished.IsZero():
	case !r.finished():
		t.line("stopped", "the run is not finished: continue it with --resume")
	default:
		t.line("stopped", r.Summary.StoppedBecause)
	}
	t.line("trials", r.trials())
	path := filepath.Join(d.Dir, PageFile)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		path = "not written: vitrine report " + d.Dir
	}
	t.line("report", path)
	if err := t.Flush(); err != nil {
		return fmt.Errorf("writing the summary: %w", err)
	}
	return nil
}

// A summary writes lines of a name and a value.
type summary struct{ *tabwriter.Writer }

// line writes one line, unless the value is empty.
func (t summary) line(name, value string) {
	if value != "" {
		fmt.Fprintf(t, "%s\t%s\n", name, strings.Join(strings.Fields(value), " "))
	}
}

// optimal writes the results of the best sizing.
func (s *set) optimal(t summary, x *subject) {
	r, c := s.runs[0], x.capacity()
	name := "optimal sizing"
	if r.Summary.Partial {
		name = "best so far"
	}
	t.line(name, fmt.Sprintf("%s (%s)", x.sizing, sizeText(x.summary)))
	interval := cmp.Or(x.unsearched(c.Threshold), s.sure()+"interval "+intervalText(c))
	capacity := fmt.Sprintf("%s %s at success ratio %s, %s", capacityText(c), s.unit, shortest(c.Threshold), interval)
	if why := censoredText(c, s.unit); why != "" {
		capacity += " (" + why + ")"
	}
	t.line("capacity", capacity)
	t.line("deployments", cmp.Or(deploymentsText(c, s.unit), r.oneDeployment()))
	bottleneck := "not known"
	if z := x.summary; z.Bottleneck != "" {
		bottleneck = z.Bottleneck
		if used, ok := z.Utilization[z.Bottleneck]; ok {
			bottleneck += fmt.Sprintf(", %s used at capacity: %s", r.resourceName(), percent(used))
		}
	}
	t.line("bottleneck", bottleneck)
	t.line("host speed", slowed(x.outcomes))
	t.line("why", r.Summary.Optimal.Why)
}

// trials returns the number of trials, how many of them are invalid, and how many of the invalid
// ones were disturbed.
func (r *run) trials() string {
	invalid, disturbed := 0, 0
	for _, o := range r.Outcomes {
		if !o.Valid {
			invalid++
		}
		if o.Disturbed {
			disturbed++
		}
	}
	text := fmt.Sprintf("%d of %d sizes, %d invalid", len(r.Outcomes), len(r.subjects), invalid)
	if r.measured() {
		text = fmt.Sprintf("%d, %d invalid", len(r.Outcomes), invalid)
	}
	if disturbed > 0 {
		text += fmt.Sprintf(", %d of them disturbed", disturbed)
	}
	return text
}

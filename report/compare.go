package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"

	"vitrine"
	"vitrine/result"
)

// A Comparison is the result of Compare, for programs.
type Comparison struct {
	Unit      string  `json:"unit"`
	Threshold float64 `json:"threshold"`      // of the success ratio
	Mark      string  `json:"mark,omitempty"` // the runs whose figures cannot be compared with others, and why
	Rows      []Row   `json:"rows"`           // the highest capacity first
	Pairs     []Pair  `json:"pairs"`          // the same sizing in two runs

	Warnings []string `json:"warnings,omitempty"` // of sizes whose deployments are of two kinds or change in an overload, of runs whose host, programs or files differ from those of the first, and of runs that deployed each size only once
}

// A Row is one size of one run.
type Row struct {
	Run       string  `json:"run"`
	Sizing    string  `json:"sizing"`
	Substrate string  `json:"substrate"`
	Options   string  `json:"options"`
	VCPUs     float64 `json:"vcpus,omitempty"` // of the scalable components together; absent: not known
	vitrine.Capacity
	Bottleneck string     `json:"bottleneck"`
	HostSpeed  *HostSpeed `json:"host_speed"` // during the trials; null: not known
	// Relation to the first row: "best" for the first row itself, "tied" if the intervals overlap,
	// otherwise "lower"; "unknown" if the capacity was not measured or has a note.
	Relation string `json:"relation"`
	Note     string `json:"note,omitempty"` // why the capacity is a mere estimate, whose interval does not count
}

// A Pair compares the same size in two runs.
type Pair struct {
	Sizing string `json:"sizing"`
	From   string `json:"from"` // its name in the first run
	To     string `json:"to"`   // its name in the other run
	// Relation of To's capacity to From's: "higher", "lower", "tied" if the intervals overlap,
	// "unknown" if one of the two was not measured, or has a note in its row.
	Relation string   `json:"relation"`
	Ratio    *float64 `json:"ratio"` // To / From; null if one of the two was not enclosed, or the relation is unknown
	// HostRatio is the mean speed of the host during To's trials / during From's. A relation may come
	// from the neighbours if it differs from 1. It is null if it is not known, or if the hosts or
	// their settings differ: each speed is a share of the best of its own host.
	HostRatio *float64 `json:"host_ratio"`
}

// Compare writes a table of the sizes of one or more runs, the highest capacity first. For sizes
// in several runs it also writes how the capacities differ.
func Compare(w io.Writer, datas ...*result.Data) error {
	s, err := newSet(datas)
	if err != nil {
		return err
	}
	c := s.comparison()
	if c.Mark != "" {
		fmt.Fprintln(w, c.Mark)
	}
	for _, warning := range c.Warnings {
		fmt.Fprintln(w, warning)
	}
	fmt.Fprintf(w, "capacity in %s at success ratio %s, highest first; tied: the %sintervals overlap\n\n", c.Unit, shortest(c.Threshold), s.sure())
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "run\tsizing\twhere\tCPUs\tcapacity\tinterval\tto the best\tbottleneck\thost speed")
	for _, r := range c.Rows {
		cpus := missing
		if r.VCPUs > 0 {
			cpus = tidy(r.VCPUs)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Run, r.Sizing, strings.TrimSpace(r.Substrate+" "+r.Options), cpus,
			capacityText(r.Capacity), cmp.Or(r.Note, intervalText(r.Capacity)), r.Relation, r.Bottleneck, r.HostSpeed)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("writing the comparison: %w", err)
	}
	if len(c.Pairs) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	for _, p := range c.Pairs {
		if _, err := fmt.Fprintln(w, p.text()); err != nil {
			return fmt.Errorf("writing the comparison: %w", err)
		}
	}
	return nil
}

// CompareJSON writes a Comparison as JSON.
func CompareJSON(w io.Writer, datas ...*result.Data) error {
	s, err := newSet(datas)
	if err != nil {
		return err
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	if err := e.Encode(s.comparison()); err != nil {
		return fmt.Errorf("writing the comparison: %w", err)
	}
	return nil
}

func (p Pair) text() string {
	s := fmt.Sprintf("%s: %s is %s", p.Sizing, p.To, p.Relation)
	switch p.Relation {
	case "higher", "lower":
		s += " than " + p.From
	case unknown:
		s += " against " + p.From
	default:
		s += " with " + p.From
	}
	if p.Ratio != nil {
		s += " (" + p.Times() + ")"
	}
	if p.HostRatio != nil && math.Abs(*p.HostRatio-1) > noticeable {
		s += "; the host ran at " + p.HostTimes() + " the speed"
	}
	return s
}

// Times returns the ratio in words.
func (p Pair) Times() string { return times(p.Ratio) }

// HostTimes returns the ratio of the host's speeds in words.
func (p Pair) HostTimes() string { return times(p.HostRatio) }

func times(ratio *float64) string {
	if ratio == nil {
		return missing
	}
	return fmt.Sprintf("%.2f times", *ratio)
}

func (s *set) comparison() Comparison {
	c := Comparison{Unit: s.unit, Threshold: s.thresholds[0], Mark: s.mark(), Rows: []Row{}, Pairs: s.pairs()}
	ranked := s.ranked()
	for _, x := range ranked {
		r := Row{Run: x.run.name, Sizing: x.sizing, Substrate: x.substrate, Options: x.options, HostSpeed: hostSpeed(x.outcomes)}
		r.Capacity, r.Note = x.capacity(), x.unsearched(c.Threshold)
		if x.summary != nil {
			r.VCPUs, r.Bottleneck = x.summary.VCPUs, x.summary.Bottleneck
		}
		r.Relation = x.relationTo(ranked[0])
		c.Rows = append(c.Rows, r)
		if kinds := x.kinds(r.Capacity); kinds != "" {
			c.Warnings = append(c.Warnings, kinds)
		}
	}
	for _, r := range s.runs {
		if why := r.differences(); why != "" {
			c.Warnings = append(c.Warnings, why)
		}
		if why := r.oneDeployment(); why != "" {
			c.Warnings = append(c.Warnings, r.name+": "+why)
		}
	}
	return c
}

// relationTo compares the subject's capacity with the best subject's.
func (s *subject) relationTo(best *subject) string {
	r := s.compareTo(best)
	if s == best && r != unknown {
		return "best"
	}
	return r
}

// compareTo returns the relation of the subject's capacity to the other's.
func (s *subject) compareTo(other *subject) string {
	if !s.isComparable() || !other.isComparable() {
		return unknown
	}
	return relation(s.capacity(), other.capacity())
}

// pairs compares every size with the same size in the first run, or variant, that
// has it.
func (s *set) pairs() []Pair {
	pairs := []Pair{}
	first := map[string]*subject{}
	for _, x := range s.subjects() {
		base, ok := first[x.sizing]
		if !ok {
			first[x.sizing] = x
			continue
		}
		from, to := base.capacity(), x.capacity()
		p := Pair{Sizing: x.sizing, From: base.variant, To: x.variant, Relation: x.compareTo(base)}
		if p.Relation != unknown && from.Censored == vitrine.CensoredNone && to.Censored == vitrine.CensoredNone && from.Rate > 0 {
			p.Ratio = new(to.Rate / from.Rate)
		}
		sameHost := len(base.run.Manifest.Host.Differences(x.run.Manifest.Host)) == 0
		if a, b := hostSpeed(base.outcomes), hostSpeed(x.outcomes); sameHost && a != nil && b != nil {
			p.HostRatio = new(b.Mean / a.Mean)
		}
		pairs = append(pairs, p)
	}
	return pairs
}

// A capacityTable is NFV-VITAL's Table II, with every threshold and interval.
type capacityTable struct {
	Thresholds []float64
	Variants   bool // sizes differ in more than their name
	Rows       []capacityRow
}

type capacityRow struct {
	Name, Variant string
	VCPUs, Memory string
	MemoryBytes   int64 // to sort by
	Cells         []capacityCell
	PerCPU        string
	Bottleneck    string
	Use           string
	Tone          string
	Relation      string
	Trials        int
	HostSpeed     string
	Optimal       bool
}

type capacityCell struct {
	Capacity, Interval, Censored string
	Rank                         float64 // to sort by; 0: no value
}

func (s *set) capacityTable() capacityTable {
	t := capacityTable{Thresholds: s.thresholds}
	ranked := s.ranked()
	for _, x := range s.subjects() {
		row := capacityRow{Name: x.sizing, Variant: x.variant, VCPUs: missing, Memory: missing, PerCPU: missing,
			Bottleneck: missing, Trials: len(x.outcomes), HostSpeed: hostSpeed(x.outcomes).String(), Optimal: x.optimal()}
		t.Variants = t.Variants || x.variant != ""
		for _, threshold := range s.thresholds {
			c := x.at(threshold)
			row.Cells = append(row.Cells, capacityCell{capacityText(c), x.intervalAt(threshold), censoredText(c, s.unit) + deploymentsText(c, s.unit), x.rankedAt(threshold)})
		}
		row.Relation = x.relationTo(ranked[0])
		if z := x.summary; z != nil {
			row.describe(z, x.capacity(), s.componentTone(z.Bottleneck).name)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// describe fills in the fields that only a finished size has. c is its capacity at the report's
// first threshold.
func (row *capacityRow) describe(z *result.Sizing, c vitrine.Capacity, tone string) {
	row.VCPUs, row.Memory, row.MemoryBytes = tidy(z.VCPUs), byteCount(z.MemoryBytes), z.MemoryBytes
	row.Trials = max(row.Trials, z.Trials)
	if z.Bottleneck != "" {
		row.Bottleneck, row.Tone = z.Bottleneck, tone
		if used, ok := z.Utilization[z.Bottleneck]; ok {
			row.Use = percent(used)
		}
	}
	if z.VCPUs > 0 && c.Censored == vitrine.CensoredNone {
		row.PerCPU = number(c.Rate / z.VCPUs)
	}
}

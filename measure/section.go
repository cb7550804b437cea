package measure

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"vitrine/measure/delay"
	"vitrine/result"
)

// unitNote is in the caption of every table of frames.
const unitNote = "Frame sizes in bytes, without the frame check sequence. Intervals are 95%, over the repeats. " +
	"Floor: the same stream over the loopback interface of an idle network namespace, which is the instrument's own part."

// Sections returns the report's sections on a run.
func Sections(d *result.Data) ([]result.Section, error) {
	s, err := Read(d)
	if err != nil {
		return nil, err
	}
	var list []result.Section
	for _, x := range []struct {
		metric string
		make   func() result.Section
	}{
		{Latency, s.latency}, {Jitter, s.jitter}, {Jitter, s.lateness}, {Jitter, s.variation}, {Efficiency, s.efficiency},
	} {
		if s.Settings.measures(x.metric) {
			list = append(list, x.make())
		}
	}
	return append(list, s.order(), s.instrument(), s.provenance(d.Manifest)), nil
}

// rows returns the rows of a metric and way, without the floor. way may be empty: all.
func (s *Summary) rows(metric, way string) []Row {
	return slices.DeleteFunc(slices.Clone(s.Rows), func(r Row) bool {
		return r.Metric != metric || way != "" && r.Way != way || r.Fabric == Floor
	})
}

// floorCell returns the cell with the floor's figure for a row.
func (s *Summary) floorCell(r Row, value func(Row) float64) result.Cell {
	f := s.Floor(r)
	if f == nil {
		return result.Cell{Text: "–"}
	}
	return Number(value(*f))
}

// line returns a row's line: its figures, or the reason why it has none.
func line(r Row, head []result.Cell, cells func() []result.Cell) result.Line {
	l := result.Line{Cells: head, Mark: r.Mark}
	if r.Repeats == 0 {
		l.Instead = "invalid: " + r.Invalid
		return l
	}
	l.Cells = append(l.Cells, cells()...)
	return l
}

// spreadNames returns the columns of a distribution: the columns of the paper's Tables
// I and II, and percentiles.
func spreadNames() []string {
	return []string{"n", "min", "max", "mean", "s", "p50", "p90", "p95", "p99", "p99.9"}
}

func spreadCells(x Spread) []result.Cell {
	return []result.Cell{
		Text("%d", x.N), Number(x.Min), Number(x.Max), Within(x.Mean), Number(x.Deviation.Mean),
		Number(x.P50.Mean), Number(x.P90.Mean), Number(x.P95.Mean), Number(x.P99.Mean), Number(x.P999.Mean),
	}
}

// spreads returns the table of a distribution.
func (s *Summary) spreads(caption string, rows []Row, of func(Row) *Spread) result.Table {
	t := result.Table{Caption: caption, Columns: Columns(1, slices.Concat([]string{"where", "size", "packets/s"}, spreadNames(), []string{"floor mean"})...)}
	for _, r := range rows {
		head := []result.Cell{{Text: r.String()}, Text("%d", r.Size), Text("%.0f", r.Rate)}
		t.Rows = append(t.Rows, line(r, head, func() []result.Cell {
			x := of(r)
			if x == nil {
				return nil
			}
			return append(spreadCells(*x), s.floorCell(r, func(f Row) float64 {
				if x := of(f); x != nil {
					return x.Mean.Mean
				}
				return 0
			}))
		}))
		if last := &t.Rows[len(t.Rows)-1]; len(last.Cells) < len(t.Columns) && last.Instead == "" {
			last.Instead = "the two ends have no common clock"
		}
	}
	t.Rows = append(t.Rows, LeftOut(s.Unsupported)...)
	return t
}

func (s *Summary) latency() result.Section {
	x := result.Section{Name: Latency, Title: "Latency", Text: []string{
		"A round trip lasts from just before the send call until the sender's kernel receives the echoed packet. One way lasts until the " +
			"receiver's kernel has the packet; it is measured only if both ends share one kernel.",
	}}
	delays := func(r Row) *Spread { return r.Delay }
	for _, way := range []string{RoundTrip, OneWay} {
		rows := s.rows(Latency, way)
		if len(rows) == 0 {
			continue
		}
		name := strings.ReplaceAll(way, " ", "-")
		x.Tables = append(x.Tables, s.spreads(fmt.Sprintf("Latency, %s, in microseconds. %s", way, unitNote), rows, delays))
		x.Charts = append(x.Charts, result.Chart{
			Name: Latency + "-" + name, Title: "Latency, " + way + ", against frame size",
			Caption: "Mean of the repeats' means, with its 95% interval; floor: the instrument's own part. Frame sizes without the frame check sequence.",
			X:       "frame size, bytes without FCS", Y: "latency, µs",
			Curves: s.curves(Latency, way, func(r Row) delay.Interval { return r.Delay.Mean }),
		})
	}
	return x
}

// curves returns a curve over the frame size for each combination, the floor's first.
func (s *Summary) curves(metric, way string, of func(Row) delay.Interval) []result.Curve {
	var list []result.Curve
	at := map[Combination]int{}
	for _, r := range s.Rows {
		if r.Metric != metric || r.Way != way || r.Delay == nil {
			continue
		}
		i, ok := at[r.Combination]
		if !ok {
			i = len(list)
			at[r.Combination] = i
			name := r.String()
			if r.Fabric == Floor {
				name = Floor
			}
			if r.Mark != "" {
				name += ", " + r.Mark
			}
			list = append(list, result.Curve{Name: name})
		}
		v := of(r)
		list[i].Points = append(list[i].Points, result.Point{X: float64(r.Size), Y: v.Mean, Low: v.Low, High: v.High})
	}
	for _, c := range list {
		slices.SortFunc(c.Points, func(a, b result.Point) int { return cmp.Compare(a.X, b.X) })
	}
	return list
}

// bars returns a bar for each combination.
func (s *Summary) bars(metric string, of func(Row) (result.Bar, bool)) []result.Bar {
	var list []result.Bar
	for _, r := range s.Rows {
		if r.Metric != metric || r.Repeats == 0 {
			continue
		}
		if b, ok := of(r); ok {
			b.Name = r.String()
			if r.Fabric == Floor {
				b.Name = Floor
			}
			if r.Mark != "" {
				b.Name += ", " + r.Mark
			}
			list = append(list, b)
		}
	}
	return list
}

func meanBar(of func(Row) *Spread) func(Row) (result.Bar, bool) {
	return func(r Row) (b result.Bar, ok bool) {
		x := of(r)
		if x == nil {
			return b, false
		}
		return result.Bar{Whole: x.Mean.Mean, Low: x.Mean.Low, High: x.Mean.High}, true
	}
}

func (s *Summary) jitter() result.Section {
	of := func(r Row) *Spread { return &r.Jitter }
	return result.Section{
		Name: Jitter, Title: "Jitter",
		Text: []string{"The paper's Table I: the running estimate J of RFC 3550, section 6.4.1, after every packet of a one-way stream."},
		Charts: []result.Chart{{
			Name: Jitter, Title: "Jitter (RFC 3550)", Y: "mean jitter, µs",
			Caption: "Mean of J over the packets, and over the repeats with its 95% interval.", Bars: s.bars(Jitter, meanBar(of)),
		}},
		Tables: []result.Table{s.spreads("Packet delay variation as jitter, RFC 3550 section 6.4.1, in microseconds. "+unitNote, s.rows(Jitter, ""), of)},
	}
}

func (s *Summary) lateness() result.Section {
	late, application := func(r Row) *Spread { return &r.Lateness }, func(r Row) *Spread { return r.Application }
	return result.Section{
		Name: "lateness", Title: "Lateness",
		Text: []string{"The paper's Table II: how much later than the least delay of its stream each packet was, until the kernel had it, " +
			"and until the receiving program had it."},
		Charts: []result.Chart{{
			Name: "lateness", Title: "Lateness", Y: "mean lateness, µs",
			Caption: "Mean over the packets, and over the repeats with its 95% interval.", Bars: s.bars(Jitter, meanBar(late)),
		}},
		Tables: []result.Table{
			s.spreads("Lateness by the kernel's receive stamps, in microseconds. "+unitNote, s.rows(Jitter, ""), late),
			s.spreads("Lateness until the receiving program had the packets, in microseconds. "+unitNote, s.rows(Jitter, ""), application),
		},
	}
}

func (s *Summary) variation() result.Section {
	return result.Section{
		Name: "variation", Title: "Delay variation",
		Text: []string{"RFC 5481: PDV is each packet's delay less the least of its stream (section 4.2), IPDV less that of the packet sent before it (section 4.1)."},
		Tables: []result.Table{
			s.spreads("Packet delay variation (PDV), in microseconds. "+unitNote, s.rows(Jitter, ""), func(r Row) *Spread { return &r.PDV }),
			s.spreads("Inter-packet delay variation (IPDV), in microseconds. "+unitNote, s.rows(Jitter, ""), func(r Row) *Spread { return &r.IPDV }),
		},
	}
}

func (s *Summary) order() result.Section {
	t := result.Table{
		Caption: "The packets of all valid repeats, within the cut. Sizes are in bytes, without the frame check sequence. Lost: RFC 7680. Reordered: RFC 4737, section 3.3; extent: section 4.2. Duplicates: RFC 5560.",
		Columns: Columns(1, "where", "stream", "size", "sent", "lost", "%", "reordered", "%", "extent", "duplicates"),
	}
	t.Columns[1].Number = false
	for _, r := range s.Rows {
		head := []result.Cell{{Text: r.String()}, {Text: strings.TrimSuffix(r.Metric+", "+r.Way, ", ")}, Text("%d", r.Size)}
		t.Rows = append(t.Rows, line(r, head, func() []result.Cell {
			received := r.Sent - r.Lost
			return []result.Cell{
				Text("%d", r.Sent), Text("%d", r.Lost), percent(r.Lost, r.Sent), Text("%d", r.Reordered), percent(r.Reordered, received),
				Text("%d", r.Extent), Text("%d", r.Duplicates),
			}
		}))
	}
	t.Rows = append(t.Rows, LeftOut(s.Unsupported)...)
	return result.Section{Name: "order", Title: "Loss and order", Tables: []result.Table{t}}
}

func percent(part, whole int) result.Cell {
	if whole == 0 {
		return result.Cell{Text: "–"}
	}
	return Text("%.3f", 100*float64(part)/float64(whole))
}

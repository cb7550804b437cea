package chain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"vitrine/measure"
	"vitrine/measure/delay"
	"vitrine/result"
)

// Sections returns the report's sections on a run.
func Sections(d *result.Data) ([]result.Section, error) {
	r, err := Read(d)
	if err != nil {
		return nil, err
	}
	list := []result.Section{r.roundTrip(), r.variation(), r.linearity()}
	if r.Settings.Inject.Hop > 0 {
		list = append(list, r.injection())
	}
	return append(list, r.settings(d.Manifest)), nil
}

// note returns the sentences that end every table's caption.
func (r *Report) note() string {
	return fmt.Sprintf("Frames of %d bytes without the frame check sequence, %.0f a second. Intervals are 95%%, over the repeats.", r.Settings.Size, r.Settings.Rate)
}

func (r *Report) roundTrip() result.Section {
	t := result.Table{
		Caption: "Round trip by number of hops, in microseconds. " + r.note(),
		Columns: measure.Columns(1, "chain", "hops", "least", "median", "mean", "p99", "sent", "lost", "reordered"),
	}
	for _, c := range r.Chains {
		for _, p := range c.Points {
			t.Rows = append(t.Rows, result.Line{Mark: c.Mark(), Cells: []result.Cell{
				{Text: c.name(p.Injected)}, measure.Text("%d", p.Length), measure.Number(p.Least), measure.Within(p.RoundTrip), measure.Within(p.Mean), measure.Within(p.P99),
				measure.Text("%d", p.Sent), measure.Text("%d", p.Lost), measure.Text("%d", p.Reordered),
			}})
		}
	}
	t.Rows = append(t.Rows, measure.LeftOut(r.Unsupported)...)
	return result.Section{
		Name: "chain", Title: "Round trip by length",
		Text: []string{"The paper's figure 8. Probes pass each hop in turn; the reply comes straight back (figure 7). A chain of 0 hops is sender and receiver alone."},
		Charts: []result.Chart{{
			Name: "chain-round-trip", Title: "Round trip through chains", Caption: "Mean of the repeats' means, with its 95% interval.",
			X: "forwarders in the chain", Y: "round trip, µs", Curves: r.curves(func(p Point) delay.Interval { return p.Mean }),
		}},
		Tables: []result.Table{t},
	}
}

// name returns the chain's name in tables and figures.
func (c *Chain) name(injected bool) string {
	name := c.String()
	if len(c.Forwarding) > 0 && strings.Join(c.Forwarding, "; ") != c.Forwarder {
		name += " (" + strings.Join(c.Forwarding, "; ") + ")"
	}
	if injected {
		name += ", with the injected delay"
	}
	return name
}

// curves returns a curve over the length for each chain, and one with the injected delay.
func (r *Report) curves(of func(Point) delay.Interval) []result.Curve {
	var list []result.Curve
	for _, c := range r.Chains {
		for _, injected := range []bool{false, true} {
			curve := result.Curve{Name: c.name(injected)}
			if c.Mark() != "" {
				curve.Name += ", " + c.Mark()
			}
			for _, p := range c.Points {
				if p.Injected == injected {
					v := of(p)
					curve.Points = append(curve.Points, result.Point{X: float64(p.Length), Y: v.Mean, Low: v.Low, High: v.High})
				}
			}
			if len(curve.Points) > 0 {
				list = append(list, curve)
			}
		}
	}
	return list
}

func (r *Report) variation() result.Section {
	t := result.Table{
		Caption: "Delay variation as mean jitter, RFC 3550 section 6.4.1, of round trips, in microseconds. " + r.note(),
		Columns: measure.Columns(1, "chain", "hops", "jitter"),
	}
	for _, c := range r.Chains {
		for _, p := range c.Points {
			t.Rows = append(t.Rows, result.Line{Mark: c.Mark(), Cells: []result.Cell{{Text: c.name(p.Injected)}, measure.Text("%d", p.Length), measure.Within(p.Jitter)}})
		}
	}
	t.Rows = append(t.Rows, measure.LeftOut(r.Unsupported)...)
	return result.Section{
		Name: "chain-variation", Title: "Delay variation by length", Text: []string{"The paper's figure 9."},
		Charts: []result.Chart{{
			Name: "chain-variation", Title: "Delay variation through chains", Caption: "Mean of the repeats' means, with its 95% interval.",
			X: "forwarders in the chain", Y: "mean jitter, µs", Curves: r.curves(func(p Point) delay.Interval { return p.Jitter }),
		}},
		Tables: []result.Table{t},
	}
}

func (r *Report) linearity() result.Section {
	lines := result.Table{
		Caption: "Least-squares lines through the means of each length. " + r.note(),
		Columns: measure.Columns(2, "chain", "of", "at 0 hops, µs", "per hop, µs", "R squared of the means"),
	}
	rest := result.Table{
		Caption: "Residuals: the measured value minus that of the line, in microseconds. " + r.note(),
		Columns: measure.Columns(2, "chain", "of"),
	}
	for _, length := range r.Settings.Lengths {
		rest.Columns = append(rest.Columns, result.Column{Name: fmt.Sprintf("%d hops", length), Number: true})
	}
	for _, c := range r.Chains {
		for _, f := range c.Fits {
			head := []result.Cell{{Text: c.name(false)}, {Text: f.Of}}
			slope := measure.Within(f.Slope)
			slope.Text = measure.Figure(f.PerHop)
			lines.Rows = append(lines.Rows, result.Line{Mark: c.Mark(), Cells: slices.Concat(head, []result.Cell{measure.Number(f.Intercept), slope, measure.Text("%.4f", f.R2)})})
			rest.Rows = append(rest.Rows, result.Line{Mark: c.Mark(), Cells: slices.Concat(head, residuals(r.Settings.Lengths, f.Residuals))})
		}
	}
	lines.Rows = append(lines.Rows, measure.LeftOut(r.Unsupported)...)
	return result.Section{
		Name: "chain-fit", Title: "Linearity", Text: []string{"The paper's Table III. A hop that takes more than the others shows in the residuals."},
		Tables: []result.Table{lines, rest},
	}
}

// residuals returns a cell for each length; a length without a value has a dash.
func residuals(lengths []int, list []Residual) []result.Cell {
	cells := make([]result.Cell, len(lengths))
	for i, length := range lengths {
		cells[i] = result.Cell{Text: "–"}
		for _, x := range list {
			if x.Length == length {
				cells[i] = measure.Within(x.Value)
			}
		}
	}
	return cells
}

func (r *Report) injection() result.Section {
	i := r.Settings.Inject
	t := result.Table{
		Caption: "Added: how much longer chains that pass the hop take with the delay than without it, minus the same difference for chains that do not pass it. " +
			"By length: the value with the delay, minus the line of the values without it. Microseconds.",
		Columns: measure.Columns(2, "chain", "of", "added"),
	}
	for _, length := range r.Settings.Lengths {
		t.Columns = append(t.Columns, result.Column{Name: fmt.Sprintf("%d hops", length), Number: true})
	}
	for _, c := range r.Chains {
		for _, f := range c.Found {
			head := []result.Cell{{Text: c.name(false)}, {Text: f.Of}, measure.Within(f.Added)}
			t.Rows = append(t.Rows, result.Line{Mark: c.Mark(), Cells: slices.Concat(head, residuals(r.Settings.Lengths, f.Residuals))})
		}
	}
	return result.Section{
		Name: "chain-injected", Title: "The injected delay as measured",
		Text:   []string{fmt.Sprintf("Hop %d, counted from the receiver, held every frame for %s.", i.Hop, i.Delay)},
		Tables: []result.Table{t},
	}
}

// settings shows the conditions of the results, in the terms of the documents that require them
// (RFC 8172, draft-ietf-bmwg-containerized-infra).
func (r *Report) settings(m result.Manifest) result.Section {
	t := result.Table{Caption: "The conditions of the results, in the terms of RFC 2544, RFC 8172 and draft-ietf-bmwg-containerized-infra.", Columns: measure.Columns(2, "what", "here")}
	say := func(name, format string, v ...any) {
		t.Rows = append(t.Rows, result.Line{Cells: []result.Cell{{Text: name}, measure.Text(format, v...)}})
	}
	s := r.Settings
	say("frame size", "%d bytes, without the frame check sequence (4 more with it)", s.Size)
	say("trial", "one stream of %d packets at %.0f a second; the first %d and the last %d are left out", s.Packets, s.Rate, s.Cut.Head, s.Cut.Tail)
	say("repeats", "%d, each a fresh deployment, all chains in turn", s.Repeat)
	for _, name := range s.Substrates {
		say("virtualization of the hops, "+name, "%s", m.Substrates[name])
	}
	for _, name := range slices.Sorted(maps.Keys(m.Accelerators)) {
		say("accelerator of virtual machines, "+name, "%s", m.Accelerators[name])
	}
	for _, name := range s.Fabrics {
		say("networking model, "+name, "%s", s.Platform.NetworkingModel(name))
	}
	for _, name := range slices.Sorted(maps.Keys(m.FabricVersions)) {
		say("virtual switch, "+name, "%s", cmp.Or(m.FabricVersions[name], "not known"))
	}
	for name, text := range s.Options.All() {
		say("options of "+name, "%s", text)
	}
	hops, hopNode := s.HopCPUs, "hops"
	if hops == "" {
		hops, hopNode = fmt.Sprintf("all hops on %v", m.CPUs.Function), "the first of the hops' CPUs"
	}
	say("CPU pinning", "sender and the receiver's echo on %v; %s; the kernel's receive work: %s", m.CPUs.Generator, hops, s.Platform.ReceiveCPU)
	say("CPU isolation (isolcpus)", "%v", m.Host.IsolatedCPUs)
	nodes := "sender and the receiver's echo " + s.Platform.SenderNode
	if s.Platform.ReceiverNode != "" { // there are hops
		nodes += ", " + hopNode + " " + s.Platform.ReceiverNode
	}
	say("NUMA node", "%s", nodes)
	say("hugepages", "%s; transparent: %s; the instances use none", s.Platform.Hugepages, s.Platform.THP)
	say("shared resources", "%s", strings.Join(m.NotIsolated, "; "))
	for _, c := range r.Chains {
		late := 0.0
		for _, x := range c.streams {
			late = max(late, float64(x.Sent.Schedule.P99)/1e3)
		}
		say(c.String(), "forwarding: %s; 99%% of each stream sent within %s µs of its time", strings.Join(c.Forwarding, "; "), measure.Figure(late))
	}
	for _, note := range r.Notes {
		say("left out", "%s", note)
	}
	return result.Section{Name: "chain-settings", Title: "Conditions", Tables: []result.Table{t}}
}

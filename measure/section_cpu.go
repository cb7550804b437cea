package measure

import (
	"fmt"

	"vitrine/measure/cpu"
	"vitrine/result"
)

func (s *Summary) efficiency() result.Section {
	x := result.Section{
		Name: Efficiency, Title: "CPU time per packet",
		Text: []string{
			"The paper's figure 5. Total: what the sender's waiting and a soaker of idle priority on the receiver's CPU did not get done, the background taken off. " +
				"Counted: the same by BPF, in a stream of its own, event by event; waiting of the sender counts in neither.",
			fmt.Sprintf("User, kernel and interrupt time are BPF's, and given only where the two differ by at most %.0f%% in most repeats.", cpu.AgreeWithin*100),
		},
	}
	t := result.Table{
		Caption: "CPU time of a packet on the sender's and the receiver's CPUs, in nanoseconds. Relative: to direct on the same substrate, repeat by repeat. " + unitNote,
		Columns: Columns(1, "where", "size", "packets/s", "total", "relative", "user", "kernel", "interrupt", "counted", "background", "floor total", "split"),
	}
	t.Columns[len(t.Columns)-1].Number = false
	for _, r := range s.rows(Efficiency, "") {
		head := []result.Cell{{Text: r.String()}, Text("%d", r.Size), Text("%.0f", r.Rate)}
		t.Rows = append(t.Rows, line(r, head, func() []result.Cell { return s.useCells(r) }))
	}
	t.Rows = append(t.Rows, LeftOut(s.Unsupported)...)
	x.Tables = []result.Table{t}
	x.Charts = []result.Chart{{
		Name: Efficiency, Title: "CPU time per packet", Y: "CPU time per packet, ns", Parts: []string{"user", "kernel", "interrupt"},
		Caption: "By who took it, as BPF counted; of those without a split, the total alone. The bar's line is the 95% interval of the total.",
		Bars: s.bars(Efficiency, func(r Row) (b result.Bar, ok bool) {
			if r.CPU == nil {
				return b, false
			}
			b.Whole, b.Low, b.High = r.CPU.Total.Mean, r.CPU.Total.Low, r.CPU.Total.High
			if p := r.CPU.Split; p != nil {
				b.Parts = []float64{p.User, p.Kernel, p.Interrupt}
			}
			return b, true
		}),
	}}
	return x
}

func (s *Summary) useCells(r Row) []result.Cell {
	u := r.CPU
	if u == nil {
		return nil
	}
	none := result.Cell{Text: "–"}
	cells := []result.Cell{Within(u.Total), none, none, none, none, Within(u.Counted), Number(u.Background.Mean)}
	if u.Relative != nil {
		cells[1] = Within(*u.Relative)
	}
	split := "not given: " + u.Why
	if p := u.Split; p != nil {
		cells[2], cells[3], cells[4] = Number(p.User), Number(p.Kernel), Number(p.Interrupt)
		split = fmt.Sprintf("given, of %d of %d repeats", u.Agreed, r.Repeats)
	}
	floor := s.floored(r, func(f Row) float64 {
		if f.CPU == nil {
			return 0
		}
		return f.CPU.Total.Mean
	})
	return append(cells, floor, result.Cell{Text: split})
}

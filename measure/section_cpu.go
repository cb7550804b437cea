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
			"The paper's figure 5. Total: the work that the sender's waiting loop, and a soaker of idle priority on the receiver's CPU, could not do, minus the background. " +
				"Counted: the same by BPF, event by event, in a second stream. Neither counts the sender's waiting.",
			"Neither counts work on other CPUs. Virtual links do their work on these two. If packets pass a network card, as with sriov, its receive work runs on the CPUs of its interrupts.",
			fmt.Sprintf("User, kernel and interrupt time are BPF's. They are given only if the two totals differ by at most %.0f%% in most repeats.", cpu.AgreeWithin*100),
		},
	}
	t := result.Table{
		Caption: "CPU time per packet on the sender's and the receiver's CPUs, in nanoseconds. Relative: to direct on the same substrate, repeat by repeat. " + unitNote,
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
		Caption: "Split as BPF counted; without a split, only the total. The line on a bar is the 95% interval of the total.",
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
		split = fmt.Sprintf("given: %d of %d repeats", u.Agreed, r.Repeats)
	}
	floor := s.floorCell(r, func(f Row) float64 {
		if f.CPU == nil {
			return 0
		}
		return f.CPU.Total.Mean
	})
	return append(cells, floor, result.Cell{Text: split})
}

package ladder

import (
	"fmt"
	"slices"

	"vitrine/affinity"
)

// The tones of messages on the critical path and of all other messages.
const (
	critical = "c1"
	plain    = "muted"
)

const (
	top    = 74.0 // y of the first message
	step   = 30.0 // from one message to the next
	margin = 44.0
	letter = 12.0
)

// steps draws a flow as a ladder: a line down for each function, an arrow for each
// message. Members of the aggregate are marked.
func steps(f affinity.Flow, members []string) string {
	var d drawing
	x := columns(f)
	bottom := top + step*float64(len(f.Messages))
	for i, name := range f.Functions {
		fill := "card"
		if slices.Contains(members, name) {
			fill = "band"
		}
		width := textWidth(name, 13) + 26
		d.line(x[i], 46, x[i], bottom, pen{tone: "rule", width: 1.2})
		d.box(x[i]-width/2, 18, width, 28, fill)
		d.text(x[i], 37, hand{tone: "ink", size: 13, bold: true, anchor: "middle"}, name)
	}
	for i, m := range f.Messages {
		y := top + step*float64(i)
		from, to := x[slices.Index(f.Functions, m.From)], x[slices.Index(f.Functions, m.To)]
		p, h := pen{tone: plain, width: 1.3, arrow: true}, hand{tone: "ink", size: letter, anchor: "middle", halo: true}
		if m.Critical {
			p.tone, p.width, h.bold = critical, 2.4, true
		}
		if m.Async {
			p.dash, h.tone = "5 4", plain
		}
		d.line(from, y, to, y, p)
		d.text((from+to)/2, y-7, h, caption(m))
		d.text(8, y+4, hand{tone: plain, size: 10, anchor: "start"}, fmt.Sprint(i+1))
	}
	last := len(f.Functions) - 1
	return d.svg(x[last]+max(margin, textWidth(f.Functions[last], 13)/2+22), bottom+8,
		fmt.Sprintf("Ladder of %s: %d messages between %d functions", f.Title, len(f.Messages), len(f.Functions)))
}

// caption returns the text of an arrow: the name, and the median and the 95th
// percentile of the time since the first message.
func caption(m affinity.Step) string {
	if m.After == nil {
		return m.Name
	}
	return fmt.Sprintf("%s (%s, %s ms)", m.Name, millis(m.After.P50), millis(m.After.P95))
}

// columns returns the x positions of the functions, spaced so that the messages'
// captions fit between them.
func columns(f affinity.Flow) []float64 {
	gaps := make([]float64, len(f.Functions)-1)
	for i := range gaps {
		gaps[i] = max(90, (textWidth(f.Functions[i], 13)+textWidth(f.Functions[i+1], 13))/2+44)
	}
	for span := 1; span <= len(gaps); span++ { // short arrows first
		for _, m := range f.Messages {
			from, to := slices.Index(f.Functions, m.From), slices.Index(f.Functions, m.To)
			left := min(from, to)
			if max(from, to)-left != span {
				continue
			}
			room := 0.0
			for _, gap := range gaps[left : left+span] {
				room += gap
			}
			size := letter
			if m.Critical {
				size *= 1.08 // bold
			}
			if lack := textWidth(caption(m), size) + 22 - room; lack > 0 {
				for i := left; i < left+span; i++ {
					gaps[i] += lack / float64(span)
				}
			}
		}
	}
	x := make([]float64, len(f.Functions))
	x[0] = max(margin, textWidth(f.Functions[0], 13)/2+30)
	for i, gap := range gaps {
		x[i+1] = float64(int(x[i] + gap + 0.5))
	}
	return x
}

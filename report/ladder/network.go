package ladder

import (
	"fmt"
	"math"
	"slices"

	"vitrine/affinity"
	"vitrine/affinity/graph"
)

// A node is a box of the graph: one function, or an aggregate with its members.
type node struct {
	lines         []string
	x, y          float64 // centre
	width, height float64
	fill          string
}

// network draws the affinity graph of a type twice: on the left with each function as a
// node, on the right with the aggregate as one node.
func network(t affinity.Type) string {
	var d drawing
	before := contract(t.Pairs, nil)
	after := contract(t.Pairs, t.Members)
	rx, ry, widest := radii(before.names, t.Members)
	width, height := max(500, 2*rx+widest+20), 2*ry+80
	for i, side := range []struct {
		title string
		of    contracted
	}{
		{fmt.Sprintf("Before: %s messages between sites", number(t.Messages.Before)), before},
		{fmt.Sprintf("After: %s messages between sites", number(t.Messages.After)), after},
	} {
		left := float64(i) * width
		d.text(left+20, 26, hand{tone: "ink", size: 14, bold: true, anchor: "start"}, side.title)
		side.of.draw(&d, left+width/2, 40+height/2, rx, ry, t.Members)
	}
	return d.svg(2*width, height+50, "Affinity graph of "+t.Type+" before and after aggregation; the table has the same numbers.")
}

// radii returns the radii of the ellipse on which the functions are, and the width of their widest
// box. The ellipse grows with the boxes, so that no box covers another one or the aggregate.
func radii(names, members []string) (x, y, widest float64) {
	for _, name := range slices.Concat(names, members) {
		widest = max(widest, newNode([]string{name}, 0, 0, "").width)
	}
	places := float64(len(names) | 1)
	x = max(185, 1.2*widest, 0.225*widest*places)
	y = max(160, 10*places, 12*float64(len(members))+50)
	return math.Round(x), y, widest
}

// A contracted is a graph with the members of the aggregate contracted to one node.
type contracted struct {
	names []string // "" is the aggregate
	pairs []graph.Pair
}

func contract(pairs []graph.Pair, members []string) contracted {
	var c contracted
	inside := func(name string) string {
		if len(members) > 1 && slices.Contains(members, name) {
			return ""
		}
		return name
	}
	for _, p := range pairs {
		p.A, p.B = inside(p.A), inside(p.B)
		for _, name := range []string{p.A, p.B} {
			if !slices.Contains(c.names, name) {
				c.names = append(c.names, name)
			}
		}
		if p.A == p.B {
			continue
		}
		at := slices.IndexFunc(c.pairs, func(q graph.Pair) bool { return q.A == p.A && q.B == p.B || q.A == p.B && q.B == p.A })
		if at < 0 {
			c.pairs = append(c.pairs, p)
			continue
		}
		c.pairs[at].Messages += p.Messages
		c.pairs[at].Bytes += p.Bytes
	}
	return c
}

// draw places the aggregate in the centre, and the functions on an ellipse around it.
func (c contracted) draw(d *drawing, x, y, rx, ry float64, members []string) {
	nodes := map[string]*node{}
	around := slices.DeleteFunc(slices.Clone(c.names), func(name string) bool { return name == "" })
	if len(around) < len(c.names) {
		nodes[""] = newNode(members, x, y, "band")
	}
	places := len(around) | 1 // odd, so that no line between two functions passes through the aggregate in the centre
	for i, name := range around {
		angle := 2*math.Pi*float64(i)/float64(places) - math.Pi/2
		fill := "card"
		if slices.Contains(members, name) {
			fill = "band"
		}
		nodes[name] = newNode([]string{name}, math.Round(x+rx*math.Cos(angle)), math.Round(y+ry*math.Sin(angle)), fill)
	}
	most := 1.0
	for _, p := range c.pairs {
		most = max(most, p.Messages)
	}
	for _, p := range c.pairs {
		a, b := nodes[p.A], nodes[p.B]
		d.line(a.x, a.y, b.x, b.y, pen{tone: "c0", width: math.Round(10+50*p.Messages/most) / 10})
	}
	for _, name := range c.names {
		nodes[name].draw(d)
	}
	for _, p := range c.pairs { // on top of boxes and lines
		px, py := middle(nodes[p.A], nodes[p.B])
		d.text(px, py, hand{tone: "ink", size: 13, bold: true, anchor: "middle", halo: true}, number(p.Messages))
	}
}

// middle returns the position for a line's label: the middle of the line's visible part.
func middle(a, b *node) (x, y float64) {
	from, to := leave(a, b), 1-leave(b, a)
	at := (from + to) / 2
	return math.Round(a.x + (b.x-a.x)*at), math.Round(a.y+(b.y-a.y)*at) + 5
}

// leave returns the share of the line from a to b that a's box hides.
func leave(a, b *node) float64 {
	dx, dy := math.Abs(b.x-a.x), math.Abs(b.y-a.y)
	share := 1.0
	if dx > 0 {
		share = min(share, a.width/2/dx)
	}
	if dy > 0 {
		share = min(share, a.height/2/dy)
	}
	return share
}

func newNode(lines []string, x, y float64, fill string) *node {
	n := &node{lines: lines, x: x, y: y, fill: fill, height: 14 + 18*float64(len(lines))}
	for _, line := range lines {
		n.width = max(n.width, textWidth(line, 13)+26)
	}
	return n
}

func (n *node) draw(d *drawing) {
	d.box(n.x-n.width/2, n.y-n.height/2, n.width, n.height, n.fill)
	for i, line := range n.lines {
		d.text(n.x, n.y-n.height/2+21+18*float64(i), hand{tone: "ink", size: 13, bold: true, anchor: "middle"}, line)
	}
}

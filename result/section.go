package result

// A Section is a part of a report about what is no capacity: the package that
// measured it makes tables and charts of a run's outcomes, and package report
// shows them.
type Section struct {
	Name   string // of its files and links: "latency"; [a-z0-9-]
	Title  string
	Text   []string // paragraphs
	Charts []Chart
	Tables []Table
}

// A Table has a heading column and others.
type Table struct {
	Caption string // units, and what the figures are of
	Columns []Column
	Rows    []Line
}

// A Column is one of a table.
type Column struct {
	Name   string
	Number bool // figures, set to the right
}

// A Line is a row of a table: as many cells as there are columns, or fewer where
// Instead says why there are none.
type Line struct {
	Cells   []Cell
	Instead string // in place of the columns that have no cell
	Mark    string // why it cannot be compared with others; empty: it can
}

// A Cell is one figure or word.
type Cell struct {
	Text string
	Note string // beside it, smaller: an interval
}

// A Chart is drawn from numbers. Either its curves go over numbers, or its bars
// stand at names.
type Chart struct {
	Name    string // of its files; [a-z0-9-], and begins with that of its section
	Title   string
	Caption string
	X, Y    string // what the axes show, with the unit
	Curves  []Curve
	Bars    []Bar
	Parts   []string // names of what bars are made of; empty: of one
}

// A Curve is values over numbers.
type Curve struct {
	Name   string
	Points []Point
}

// A Point is a value and the interval that it lies in.
type Point struct{ X, Y, Low, High float64 }

// A Bar is a value at a name, of as many parts as the chart names. Where its
// parts are not known, Whole is all that is.
type Bar struct {
	Name      string
	Parts     []float64
	Whole     float64 // the sum of the parts, or what is known instead of them
	Low, High float64 // where Whole lies
}

package result

import (
	"fmt"
	"strings"
)

// A Section is a part of a report about something other than capacity. The package that measured it
// makes tables and charts from a run's outcomes, and package report shows them.
type Section struct {
	Name   string // of its files and links, for example "latency"; [a-z0-9-]
	Title  string
	Text   []string // paragraphs
	Charts []Chart
	Tables []Table
}

// A Table has a heading column and further columns.
type Table struct {
	Caption string // units, and what the figures describe
	Columns []Column
	Rows    []Line
}

// A Column is a column of a table.
type Column struct {
	Name   string
	Number bool // holds figures, aligned right
}

// A Line is a row of a table. It has a cell for each column, or fewer if Instead says why cells are
// missing.
type Line struct {
	Cells   []Cell
	Instead string // shown in place of the missing cells
	Mark    string // why the row cannot be compared with others; empty: it can
}

// A Cell is a figure or a word.
type Cell struct {
	Text string
	Note string // shown beside it, smaller: an interval
}

// Numbers writes a list of numbers as reports show it: "64, 1514".
func Numbers(list []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(list), " ", ", "), "[]")
}

// A Chart shows numbers. It has either curves over numbers or bars at names.
type Chart struct {
	Name    string // of its files; [a-z0-9-], begins with its section's name
	Title   string
	Caption string
	X, Y    string // labels of the axes, with units
	Curves  []Curve
	Bars    []Bar
	Parts   []string // names of the parts of each bar; empty: bars have one part
}

// A Curve is a series of values over numbers.
type Curve struct {
	Name   string
	Points []Point
}

// A Point is a value with its interval.
type Point struct{ X, Y, Low, High float64 }

// A Bar is a value at a name. It has one part for each of the chart's Parts. If its parts are
// unknown, only Whole is set.
type Bar struct {
	Name      string
	Parts     []float64
	Whole     float64 // the sum of the parts, or the known total
	Low, High float64 // interval of Whole
}

package measure

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"vitrine/measure/delay"
	"vitrine/result"
)

// Figure formats a number with about three digits.
func Figure(v float64) string {
	a := max(v, -v)
	switch {
	case a >= 1000:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 100:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// Number returns a table cell.
func Number(v float64) result.Cell { return result.Cell{Text: Figure(v)} }

// Text returns a table cell.
func Text(format string, v ...any) result.Cell { return result.Cell{Text: fmt.Sprintf(format, v...)} }

// Within returns a cell with the mean of an interval. The bounds are the note.
func Within(i delay.Interval) result.Cell {
	c := Number(i.Mean)
	switch {
	case i.Repeats == 0:
		c.Text = "–"
	case i.Confidence > 0:
		c.Note = fmt.Sprintf("%s to %s", Figure(i.Low), Figure(i.High))
	}
	return c
}

// Columns returns the columns of a table. The first words columns are text, the others figures.
func Columns(words int, names ...string) []result.Column {
	list := make([]result.Column, len(names))
	for i, name := range names {
		list[i] = result.Column{Name: name, Number: i >= words}
	}
	return list
}

// LeftOut returns rows for the combinations that the host does not support, sorted by name.
func LeftOut(unsupported map[string]string) []result.Line {
	var list []result.Line
	for _, name := range slices.Sorted(maps.Keys(unsupported)) {
		list = append(list, result.Line{Cells: []result.Cell{{Text: name}}, Instead: "left out: " + unsupported[name]})
	}
	return list
}

package papers

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// A Table says how an exhibit shows its readings.
type Table struct {
	Columns []string `yaml:"columns" json:"columns"` // names of readings, without their subjects
	Rows    []Row    `yaml:"rows" json:"rows"`
}

// A Row is a row of a Table.
type Row struct {
	On     string     `yaml:"on" json:"on"`                             // "docker/bridge"; with a *: a row for each that was measured, the highest first
	Stands string     `yaml:"stands,omitempty" json:"stands,omitempty"` // what it stands for in the paper, if that is something else
	Paper  []*float64 `yaml:"paper,omitempty" json:"paper,omitempty"`   // the paper's figures in the columns' order, as far as it gives them
}

// rows returns the table's rows, with one for each match of a *.
func (t Table) rows(r Readings) []Row {
	var rows []Row
	for _, row := range t.Rows {
		if !strings.Contains(row.On, wildcard) {
			rows = append(rows, row)
			continue
		}
		found := r.matching(row.On + " " + t.Columns[0])
		value := func(what string) float64 {
			return r.of[strings.Replace(row.On, wildcard, what, 1)+" "+t.Columns[0]].Mean
		}
		slices.SortFunc(found, func(a, b string) int {
			return cmp.Or(cmp.Compare(value(b), value(a)), strings.Compare(a, b))
		})
		for _, what := range found {
			on := strings.Replace(row.On, wildcard, what, 1)
			if !slices.ContainsFunc(rows, func(row Row) bool { return row.On == on }) {
				rows = append(rows, Row{On: on})
			}
		}
	}
	return rows
}

// columns returns the columns that have a reading, or a figure of the paper. The
// split of CPU time is shown for all paths or for none.
func (t Table) columns(r Readings, rows []Row) []int {
	var list []int
	for i, c := range t.Columns {
		if slices.ContainsFunc(rows, func(row Row) bool {
			_, ok := r.of[row.On+" "+c]
			return ok || i < len(row.Paper) && row.Paper[i] != nil
		}) {
			list = append(list, i)
		}
	}
	return list
}

// grid returns the table as text, header first.
func (t Table) grid(r Readings) [][]string {
	rows := t.rows(r)
	columns := t.columns(r, rows)
	head := []string{""}
	for _, i := range columns {
		head = append(head, t.Columns[i])
	}
	grid := [][]string{head}
	for _, row := range rows {
		grid = append(grid, t.line(r, row, columns))
	}
	return grid
}

// line returns one row: its values, each followed by the paper's figure if there
// is one. A row that was not measured says why.
func (t Table) line(r Readings, row Row, columns []int) []string {
	measured, mark := false, ""
	var cells []string
	for _, i := range columns {
		text, reading := "–", row.On+" "+t.Columns[i]
		if x, ok := r.of[reading]; ok {
			measured, mark, text = true, x.Mark, x.text(reading)
		}
		if i < len(row.Paper) && row.Paper[i] != nil {
			text += fmt.Sprintf(" (%s)", strconv.FormatFloat(*row.Paper[i], 'f', -1, 64))
		}
		cells = append(cells, text)
	}
	name := displayed(row.On)
	var remarks []string
	if mark != "" {
		remarks = append(remarks, mark+": not comparable")
	}
	if row.Stands != "" {
		remarks = append(remarks, "in the paper: "+row.Stands)
	}
	if len(remarks) > 0 {
		name += " (" + strings.Join(remarks, "; ") + ")"
	}
	if !measured {
		_, why := r.read(row.On + " ")
		cells = append([]string{why}, make([]string, max(0, len(columns)-1))...)
	}
	return append([]string{name}, cells...)
}

// displayed returns the subject of a row in words.
func displayed(on string) string {
	parts := strings.Split(on, "/")
	switch {
	case strings.Contains(on, "="):
		return strings.Join(parts, ", ")
	case len(parts) == 1:
		return on
	}
	return parts[0] + " on " + parts[1] // all rows of a chain have the same forwarder
}

// legend explains what the table has.
func (e Exhibit) legend(r Readings) string {
	rows := e.Table.rows(r)
	var paper, bounds, at, cpu, peak, turns bool
	for _, i := range e.Table.columns(r, rows) {
		column := e.Table.Columns[i]
		at = at || strings.Contains(column, "@")
		peak = peak || column == "goodput.peak"
		cpu = cpu || strings.HasPrefix(column, "cpu.") && !strings.Contains(column, "@")
		for _, row := range rows {
			paper = paper || i < len(row.Paper) && row.Paper[i] != nil
			bounds = bounds || r.of[row.On+" "+column].Bound != ""
			turns = turns || r.of[row.On+" "+column].Turns != nil
		}
	}
	text, figure := "In brackets: the 95% interval", "the paper's figure, whose vCPU is a whole core"
	if e.Measured() {
		text, figure = text+" over repeats", "the paper's figure"
	}
	var parentheses []string
	if paper {
		parentheses = append(parentheses, figure)
	}
	if bounds {
		parentheses = append(parentheses, "where a capacity lies that is only bounded")
	}
	if len(parentheses) > 0 {
		text += ". In parentheses: " + strings.Join(parentheses, "; or ")
	}
	switch {
	case e.Network != nil && at:
		text += ". @64: of frames of 64 bytes without the frame check sequence"
	case e.Network != nil:
		text += ". Frame sizes do not count the frame check sequence"
	case e.Chain != nil && at:
		text += ". @3: of three forwarders"
	case !e.Measured() && cpu:
		text += ". CPU is used / given at capacity"
	}
	if peak {
		text += ". goodput.peak: the mean of each deployment's highest goodput at any rate"
	}
	if turns {
		text += ". The rows were measured in turns, and a statement about two rows is judged by the ratios within turns"
	}
	return text + "."
}

// longReason is the length, in bytes, from which a repeated reason becomes a note.
const longReason = 60

// noteReasons replaces each long reason that the grids repeat by the number of a note. It returns the notes.
func (r Readings) noteReasons(grids ...[][]string) []string {
	var reasons []string
	for _, why := range r.missing {
		if why = oneLine(why); len(why) >= longReason {
			reasons = append(reasons, why)
		}
	}
	slices.SortFunc(reasons, func(a, b string) int { // the longest first, because one may contain another
		return cmp.Or(len(b)-len(a), strings.Compare(a, b))
	})
	lines := slices.Concat(grids...)
	var notes []string
	for _, why := range slices.Compact(reasons) {
		if strings.Count(fmt.Sprint(lines), why) < 2 {
			continue
		}
		number := len(notes) + 1
		for _, line := range lines {
			for i := range line {
				line[i] = strings.ReplaceAll(line[i], why, fmt.Sprintf("note %d", number))
			}
		}
		notes = append(notes, fmt.Sprintf("Note %d: %s.", number, strings.TrimSuffix(why, ".")))
	}
	return notes
}

// verdictGrid returns the verdicts as a table, header first.
func verdictGrid(list []Verdict) [][]string {
	grid := [][]string{{"the paper states", "order", "quantity", "here", "in the paper", "figures"}}
	for _, v := range list {
		here := ""
		if v.Ratio != nil {
			here = v.Ratio.String()
		}
		paper := v.Paper.String()
		if v.Within > 0 {
			paper = strings.TrimSpace(fmt.Sprintf("%s within %g", paper, v.Within))
		}
		figures := v.Figures
		if v.Why != "" {
			figures = strings.TrimPrefix(figures+"; "+NotJudged+": "+v.Why, "; ")
		}
		grid = append(grid, []string{v.Says, v.Order, v.Quantity, here, paper, figures})
	}
	return grid
}

// Text writes the exhibit for a terminal.
func (e Exhibit) Text(out io.Writer, r Readings, found []Verdict) error {
	table, verdicts := e.Table.grid(r), verdictGrid(found)
	notes := slices.Concat(r.Notes, r.noteReasons(table, verdicts))
	fmt.Fprintf(out, "\n%s%s\n%s\n%s\n", Prefix, e.Name, e.Title, e.legend(r))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, line := range table {
		fmt.Fprintln(w, strings.Join(line, "\t"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, n := range notes {
		fmt.Fprintln(out, n)
	}
	fmt.Fprintln(out)
	for i, line := range verdicts {
		fmt.Fprintln(w, strings.Join([]string{line[1], line[2], line[3], line[4], line[0]}, "\t"))
		if i > 0 {
			fmt.Fprintf(w, "\t\t\t\t  %s\n", line[5])
		}
	}
	return w.Flush()
}

// Markdown formats a grid as a Markdown table.
func Markdown(grid [][]string) string {
	var b strings.Builder
	for i, line := range grid {
		for _, cell := range line {
			b.WriteString("| " + strings.ReplaceAll(cell, "|", "\\|") + " ")
		}
		b.WriteString("|\n")
		if i == 0 {
			b.WriteString("|" + strings.Repeat(" --- |", len(line)) + "\n")
		}
	}
	return b.String()
}

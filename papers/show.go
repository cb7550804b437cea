package papers

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"vitrine/measure"
)

// cells are a row's figures, each followed by the paper's where it has one. Of a
// row that was not measured there is one: why.
func (e Exhibit) cells(row Row, r Readings) (name string, cells []string, mark string) {
	name = strings.ReplaceAll(row.On, "/", " on ")
	if parts := strings.Split(row.On, "/"); len(parts) == 3 { // a chain: substrate, fabric, forwarder
		name = parts[0] + " on " + parts[1]
	}
	if row.Stands != "" {
		name += ", for the paper's " + row.Stands
	}
	measured := false
	for i, column := range e.Table.Columns {
		text := "–"
		if x, ok := r.Find(row.On + " " + column); ok {
			measured = true
			mark = x.Mark
			text = short(x.Mean)
			if x.Confidence > 0 && x.Confidence < certain {
				text += fmt.Sprintf(" [%s, %s]", short(x.Low), short(x.High))
			}
		}
		if i < len(row.Paper) && row.Paper[i] != nil {
			text += fmt.Sprintf(" (%s)", strconv.FormatFloat(*row.Paper[i], 'f', -1, 64))
		}
		cells = append(cells, text)
	}
	if !measured {
		why := cmp.Or(r.Missing(row.On), "not among what was measured")
		return name, []string{"not measured: " + strings.Join(strings.Fields(why), " ")}, ""
	}
	return name, cells, mark
}

// short is a number to about three digits, below 1 too.
func short(v float64) string {
	if a := max(v, -v); 0 < a && a < 1 {
		return strconv.FormatFloat(v, 'f', 3, 64)
	}
	return measure.Figure(v)
}

// legend explains the table.
const legend = "In parentheses: the paper's figure. In brackets: the 95% interval of the repeats. Frame sizes without the frame check sequence; @64: of frames of 64 bytes; of chains, @3: of three forwarders."

// Text shows the exhibit for a terminal.
func (e Exhibit) Text(out io.Writer, r Readings, found []Finding) error {
	fmt.Fprintf(out, "\n%s%s\n%s\n%s\n", Prefix, e.Name, e.Title, legend)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\t"+strings.Join(e.Table.Columns, "\t"))
	for _, row := range e.Table.Rows {
		name, cells, mark := e.cells(row, r)
		if mark != "" {
			name += ", " + mark + ": not comparable"
		}
		fmt.Fprintln(w, name+"\t"+strings.Join(cells, "\t"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out)
	fmt.Fprintln(w, "verdict\tfactor here\tin the paper\tstatement")
	for _, f := range found {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n\t\t\t  %s\n", f.Result, factor(f.Ratio), factor(paper(f)), f.Claim, f.figures())
	}
	return w.Flush()
}

// figures are the finding's in one line; why there are none, the table says.
func (f Finding) figures() string {
	if f.Result == Unmeasured {
		where, _, _ := strings.Cut(f.Detail, ":")
		return where + " was not measured"
	}
	return strings.Join(strings.Fields(f.Detail), " ")
}

func paper(f Finding) *float64 {
	if f.Factor == 0 {
		return nil
	}
	return &f.Factor
}

func factor(v *float64) string {
	if v == nil {
		return ""
	}
	return strconv.FormatFloat(*v, 'f', 2, 64)
}

// Markdown shows the exhibit for a page of documentation.
func (e Exhibit) Markdown(out io.Writer, r Readings, found []Finding) error {
	var b strings.Builder
	line := func(cells ...string) {
		for _, c := range cells {
			b.WriteString("| " + strings.ReplaceAll(c, "|", "\\|") + " ")
		}
		b.WriteString("|\n")
	}
	rule := func(n int) { b.WriteString("|" + strings.Repeat(" --- |", n) + "\n") }
	fmt.Fprintf(&b, "### %s\n\n%s\n\n", e.Title, legend)
	line(append([]string{""}, e.Table.Columns...)...)
	rule(len(e.Table.Columns) + 1)
	for _, row := range e.Table.Rows {
		name, cells, mark := e.cells(row, r)
		if mark != "" {
			name += " (" + mark + ": not comparable)"
		}
		for len(cells) < len(e.Table.Columns) {
			cells = append(cells, "")
		}
		line(append([]string{name}, cells...)...)
	}
	b.WriteString("\n")
	line("the paper states", "here", "factor here", "in the paper", "figures")
	rule(5)
	for _, f := range found {
		line(f.Claim, f.Result, factor(f.Ratio), factor(paper(f)), f.figures())
	}
	b.WriteString("\n")
	_, err := io.WriteString(out, b.String())
	return err
}

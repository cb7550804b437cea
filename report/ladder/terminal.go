package ladder

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"vitrine/affinity"
)

// Text writes the analysis as tables for a terminal.
func Text(w io.Writer, a *affinity.Analysis) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "transaction\tmessages\ton the critical path\tfunctions")
	for _, x := range a.Types {
		for _, f := range x.Flows {
			fmt.Fprintf(t, "%s\t%d\t%d\t%s\n", x.Type, len(f.Messages), onPath(f), join(f.Functions))
		}
	}
	fmt.Fprintf(t, "\n%s\n", strings.Join(append([]string{"between", ""}, typeNames(a)...), "\t"))
	for _, row := range pairRows(a) {
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	fmt.Fprintln(t, "\nfunction\tmessages\treach")
	for _, r := range a.Reach {
		var to []string
		for _, s := range r.To {
			to = append(to, s.Function+" "+percent(s.Share))
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", r.Function, number(r.Incident), join(to))
	}
	if err := t.Flush(); err != nil { // so that the next table gets its own column widths
		return err
	}
	fmt.Fprintf(t, "\ntransaction\tfunctions in the aggregate\taggregate\tcritical path\tmessages\tsaved at %s ms\n", millis(a.Delay))
	for _, x := range a.Types {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s -> %s\t%s -> %s\t%s ms\n", x.Type, join(x.Members), x.Aggregate,
			number(x.Path.Before), number(x.Path.After), number(x.Messages.Before), number(x.Messages.After), millis(x.Saved))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if err := notes(w, a); err != nil {
		return err
	}
	return captured(w, a)
}

// notes writes the remarks that a reader needs to understand the tables.
func notes(w io.Writer, a *affinity.Analysis) error {
	if n := len(a.Unmatched); n > 0 {
		more := ""
		if n > listed {
			more = fmt.Sprintf(" and %d more in affinity.json", n-listed)
		}
		if _, err := fmt.Fprintf(w, "names file: no message of %s%s\n", join(a.Unmatched[:min(n, listed)]), more); err != nil {
			return err
		}
	}
	for _, x := range a.Types {
		line := ""
		switch {
		case len(x.Members) == 0:
			line = "no function may join an aggregate, or none fits the host"
		case x.Gap != nil:
			line = fmt.Sprintf("found by %s, at most %s messages on the critical path and %s messages from the best",
				x.Search, number(x.Gap.Path), number(x.Gap.Messages))
		}
		if line == "" {
			continue
		}
		if _, err := fmt.Fprintf(w, "%s: %s\n", x.Type, line); err != nil {
			return err
		}
	}
	return nil
}

func onPath(f affinity.Flow) int {
	n := 0
	for _, m := range f.Messages {
		if m.Critical {
			n++
		}
	}
	return n
}

func typeNames(a *affinity.Analysis) []string {
	var names []string
	for _, x := range a.Types {
		names = append(names, x.Type)
	}
	return names
}

// pairRows returns a row for each pair of functions: their names, and the number of
// their messages in one transaction of each type.
func pairRows(a *affinity.Analysis) [][]string {
	var rows [][]string
	for i, x := range a.Types {
		for _, p := range x.Pairs {
			at := slices.IndexFunc(rows, func(row []string) bool { return row[0] == p.A && row[1] == p.B || row[0] == p.B && row[1] == p.A })
			if at < 0 {
				at = len(rows)
				rows = append(rows, append([]string{p.A, p.B}, slices.Repeat([]string{"-"}, len(a.Types))...))
			}
			rows[at][2+i] = number(p.Messages)
		}
	}
	return rows
}

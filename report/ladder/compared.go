package ladder

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"vitrine/affinity/compare"
	"vitrine/affinity/course"
)

// Compared writes what changed between two analyses as tables for a terminal.
func Compared(w io.Writer, c *compare.Comparison) error {
	fmt.Fprintf(w, "from %s to %s: %d changes; %d intervals, all right with a probability of at least %s\n", c.A, c.B, c.Changes, c.Intervals, percent(1-c.Doubt))
	for i := range c.Types {
		if err := comparedType(w, &c.Types[i]); err != nil {
			return err
		}
	}
	return nil
}

func comparedType(w io.Writer, x *compare.Type) error {
	fmt.Fprintf(w, "\n%s: %s\n", x.Type, countsOf(x))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, line := range comparedLines(x) {
		cells := strings.TrimRight("  "+line.What+"\t"+line.Change+"\t"+line.Interval, "\t") // without spaces at its end
		fmt.Fprintln(t, cells)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if x.TooFew > 0 {
		fmt.Fprintf(w, "  of %d times and messages it cannot be said: too few were seen\n", x.TooFew)
	}
	return nil
}

func countsOf(x *compare.Type) string {
	if x.Structural || x.Count == [2]int{} {
		return "compared by the messages of the flows"
	}
	return fmt.Sprintf("%d transactions -> %d", x.Count[0], x.Count[1])
}

// A changeLine is a change as a reader sees it.
type changeLine struct{ What, Change, Interval string }

// comparedLines returns a line for each change of a type.
func comparedLines(x *compare.Type) []changeLine {
	var lines []changeLine
	if i := x.Share; i != nil {
		lines = append(lines, changeLine{"share of transactions", fmt.Sprintf("%s%% -> %s%%", number(100*i.A), number(100*i.B)),
			fmt.Sprintf("%+.2f to %+.2f percentage points", 100*i.Least, 100*i.Most)})
	}
	if x.Aggregate != nil {
		lines = append(lines, changeLine{"aggregate", fmt.Sprintf("%s -> %s", join(x.Aggregate.A), join(x.Aggregate.B)), ""})
	}
	if p := x.Path; p != nil {
		what := "critical path, other messages"
		switch {
		case p.Length[1] > p.Length[0]:
			what = "critical path, longer"
		case p.Length[1] < p.Length[0]:
			what = "critical path, shorter"
		}
		lines = append(lines, changeLine{what, fmt.Sprintf("%d messages -> %d", p.Length[0], p.Length[1]), ""})
		for _, m := range p.New {
			lines = append(lines, changeLine{"  new on the path", messageText(m), ""})
		}
		for _, m := range p.Gone {
			lines = append(lines, changeLine{"  not on the path any more", messageText(m), ""})
		}
	}
	for _, m := range x.Messages {
		line := changeLine{What: m.What + ": " + messageText(m.Message)}
		if i := m.Rate; i != nil {
			line.Change = fmt.Sprintf("%s -> %s a transaction", number(i.A), number(i.B))
			line.Interval = fmt.Sprintf("%+.3f to %+.3f", i.Least, i.Most)
		}
		lines = append(lines, line)
	}
	if x.Duration != nil {
		lines = append(lines, timeLine("whole transaction", *x.Duration))
	}
	for _, t := range x.Times {
		what := t.Of + ": " + messageText(t.Message)
		if t.Of == compare.Processing {
			what = fmt.Sprintf("%s: %s from %s to %s", t.Of, t.From, t.In, t.Name)
		}
		lines = append(lines, timeLine(what, t.Interval))
	}
	return lines
}

func timeLine(what string, i compare.Interval) changeLine {
	word := "slower"
	if i.B < i.A {
		word = "faster"
	}
	return changeLine{word + ", " + what, fmt.Sprintf("%s -> %s ms", millis(i.A), millis(i.B)), fmt.Sprintf("%+.3f to %+.3f ms", i.Least, i.Most)}
}

func messageText(m course.Message) string { return fmt.Sprintf("%s > %s %s", m.From, m.To, m.Name) }

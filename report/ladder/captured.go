package ladder

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"vitrine/affinity"
	"vitrine/affinity/correlate"
	"vitrine/affinity/course"
	"vitrine/affinity/flow"
	"vitrine/affinity/state"
)

// listed is the number of rows of a long table that a terminal shows; affinity.json
// has all rows.
const listed = 12

// captured writes the results that only an analysis of captures has.
func captured(w io.Writer, a *affinity.Analysis) error {
	if a.Captured == nil {
		return nil
	}
	if len(a.Types) == 0 {
		fmt.Fprintln(w, "\nThe captures have no transaction: no message names a user or a session. What is in them follows.")
	}
	for _, x := range a.Types {
		if x.Measured != nil {
			if err := measured(w, x.Measured); err != nil {
				return err
			}
		}
	}
	if err := kept(w, a.Captured); err != nil {
		return err
	}
	if err := others(w, a.Captured); err != nil {
		return err
	}
	fmt.Fprintln(w)
	return a.Captured.Read.Text(w)
}

// measured writes the measurements of a type of transaction: where the time goes,
// and what each function does.
func measured(w io.Writer, m *course.Measured) error {
	fmt.Fprintf(w, "\n%s: %d transactions of %s messages", m.Type, m.Transactions, number(m.Messages))
	if m.Duration != nil {
		fmt.Fprintf(w, ", %s ms, 95%% within %s ms", millis(m.Duration.P50), millis(m.Duration.P95))
	}
	fmt.Fprintf(w, "; begins with %s from %s", m.Begins.Name, m.Begins.From)
	if m.Ends.Name != "" { // otherwise all transactions were given up
		fmt.Fprintf(w, ", ends with %s to %s", m.Ends.Name, m.Ends.To)
	}
	fmt.Fprintf(w, "\n%d retransmissions, %d requests without answer%s%s%s\n", m.Repeats, m.Unanswered, failures(m), rare(m), givenUp(m))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "critical path: function\treceives\tsends\tto\tmean ms\tp50\tp95\ton the way\tshare")
	for _, s := range m.Path {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.Function, s.In, s.Out, s.To, millis(s.Mean), times(s.Times), millis(s.Way), percent(s.Share))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(t, "function\treceives\tsends\tpasses on\tasks\tanswers itself\tabsorbs\tms on the path\tshare")
	for _, f := range m.Functions {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", f.Name, number(f.Receives), number(f.Sends), number(f.Passes), number(f.Asks),
			number(f.Decides), number(f.Absorbs), millis(f.Time), percent(f.Share))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(t, "hop\tmessage\tcount\ton the way p50\tp95\tanswered in p50\tp95")
	for i, h := range m.Hops {
		if i == listed {
			fmt.Fprintf(t, "and %d more in affinity.json\n", len(m.Hops)-listed)
			break
		}
		fmt.Fprintf(t, "%s > %s\t%s\t%d\t%s\t%s\n", h.From, h.To, h.Name, h.Count, times(h.Way), times(h.Answer))
	}
	return t.Flush()
}

func failures(m *course.Measured) string {
	var list []string
	for i, f := range m.Failures {
		if i == listed {
			list = append(list, "...")
			break
		}
		list = append(list, fmt.Sprintf("%d %s from %s", f.Count, f.Name, f.From))
	}
	if len(list) == 0 {
		return ", no failures"
	}
	return "; failures: " + strings.Join(list, ", ")
}

func rare(m *course.Measured) string {
	if m.Rare.Transactions == 0 {
		return ""
	}
	return fmt.Sprintf("; %d transactions took %d rare courses", m.Rare.Transactions, m.Rare.Courses)
}

func givenUp(m *course.Measured) string {
	if m.GivenUp == 0 {
		return ""
	}
	return fmt.Sprintf("; %d transactions were given up, because memory was full", m.GivenUp)
}

// times returns the cells of p50 and p95.
func times(t *flow.Times) string {
	if t == nil {
		return "-\t-"
	}
	return millis(t.P50) + "\t" + millis(t.P95)
}

// kept writes the state that several functions share.
func kept(w io.Writer, c *affinity.Captured) error {
	if len(c.State.Forms) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\nstate of\tin\tkeys\tshared\tprivate\tunread\twrites\treads\tbytes\tsaved operations\tsaved bytes\tlifetime\twritten by\tread by")
	forms := slices.Clone(c.State.Forms)
	if len(forms) > listed { // those with the most keys are shown
		slices.SortStableFunc(forms, func(a, b state.Form) int { return cmp.Compare(b.Keys, a.Keys) })
	}
	for i, f := range forms {
		if i == listed {
			fmt.Fprintf(t, "and %d more in affinity.json\n", len(forms)-listed)
			break
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t%s\n", f.Function, f.Store, f.Key, f.Shared, f.Private, f.Unread, f.Writes, f.Reads,
			f.Bytes, f.Saved, f.SavedBytes, f.Lifetime(), join(f.WrittenBy), join(f.ReadBy))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if c.State.GivenUp > 0 {
		fmt.Fprintf(w, "%d keys were forgotten before the end: memory was full\n", c.State.GivenUp)
	}
	if c.State.Unformed > 0 {
		fmt.Fprintf(w, "%d operations were not counted: their keys have more forms than are kept\n", c.State.Unformed)
	}
	return nil
}

// others writes the messages that belong to no transaction.
func others(w io.Writer, c *affinity.Captured) error {
	fmt.Fprintf(w, "\n%d messages, %d transactions and other exchanges; %d answers without request, %d messages whose cause cannot be decided, %d transactions given up\n",
		c.Correlated.Messages, c.Correlated.Transactions, c.Correlated.Orphans, c.Correlated.Ambiguous, c.Correlated.GivenUp)
	if c.Correlated.Truncated > 0 {
		fmt.Fprintf(w, "%d messages are of transactions with more messages than are kept\n", c.Correlated.Truncated)
	}
	if c.Beyond > 0 {
		fmt.Fprintf(w, "%d transactions and exchanges are of more types than are listed\n", c.Beyond)
	}
	if len(c.Others) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "of no transaction\tmessage\texchanges\tmessages\tbecause")
	for i, o := range c.Others {
		if i == listed {
			fmt.Fprintf(t, "and %d more in affinity.json\n", len(c.Others)-listed)
			break
		}
		fmt.Fprintf(t, "%s > %s\t%s\t%d\t%d\t%s\n", o.From, o.To, o.Name, o.Exchanges, o.Messages, o.Because)
	}
	return t.Flush()
}

// Explain writes why a message belongs to its transaction.
func Explain(w io.Writer, x *correlate.Explanation) error {
	fmt.Fprintf(w, "message %d: %s > %s %s %s at %s\n", x.Message, x.From, x.To, x.Protocol, x.Name, x.Time.Format("2006-01-02 15:04:05.000000 MST"))
	if x.Transaction == 0 {
		fmt.Fprintf(w, "belongs to no transaction: %s\n", x.Because)
	} else {
		fmt.Fprintf(w, "belongs to transaction %d, %s, with confidence %.2f: %s\n", x.Transaction, x.Type, x.Confidence, x.Because)
	}
	for _, id := range x.Identifiers {
		fmt.Fprintf(w, "  names %s\n", strings.Map(shown, id))
	}
	for _, c := range x.Candidates {
		because := c.Because
		if because == "" {
			because = "rejected: the transaction gives the sender nothing to do, or the sender starts something new"
		}
		fmt.Fprintf(w, "  candidate %d, %s, share %s, both name %s: %s\n", c.Transaction, c.Type, percent(c.Share), c.Shares, because)
	}
	if len(x.Course) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\nmessage\tafter ms\tfrom\tto\tname\tconfidence\tbecause")
	for _, p := range x.Course {
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%.2f\t%s\n", p.Message, millis(p.After), p.From, p.To, p.Name, p.Confidence, p.Because)
	}
	return t.Flush()
}

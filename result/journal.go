package result

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"

	"vitrine"
)

// A journal is the decoded content of outcomes.jsonl.
type journal struct {
	outcomes []vitrine.Outcome
	whole    int64 // length of the part with whole lines, in bytes
	unended  bool  // the last outcome is whole but lacks its newline
	torn     int   // bytes after whole that are not an outcome
}

// A lineError is the error of a line of outcomes.jsonl that is not an outcome.
type lineError struct {
	line int
	err  error
}

func (e *lineError) Error() string {
	return fmt.Sprintf("%s:%d: not an outcome: %v", journalFile, e.line, e.err)
}

func (e *lineError) Unwrap() error { return e.err }

// readJournal reads outcomes.jsonl. A killed process leaves a last line without a newline, which is
// not damage. Any other bad line is damage and gives a lineError. With skip, readJournal passes the
// error to it and continues after the damaged line.
func readJournal(data []byte, skip func(error)) (journal, error) {
	var j journal
	for line := 1; len(data) > 0; line++ {
		text, rest, ended := bytes.Cut(data, []byte("\n"))
		o, err := parseOutcome(text)
		switch {
		case err == nil:
			j.outcomes = append(j.outcomes, o)
			j.unended = !ended
		case !ended:
			j.torn = len(text)
			return j, nil
		case skip != nil:
			skip(&lineError{line, err})
		default:
			return j, &lineError{line, err}
		}
		j.whole += int64(len(data) - len(rest))
		data = rest
	}
	return j, nil
}

// parseOutcome parses one line. It rejects lines that Append never writes.
func parseOutcome(line []byte) (vitrine.Outcome, error) {
	var o vitrine.Outcome
	if err := json.Unmarshal(line, &o); err != nil {
		return o, err
	}
	return o, checkOutcome(o)
}

func checkOutcome(o vitrine.Outcome) error {
	switch {
	case o.Seq < 1 || o.Attempt < 1:
		return fmt.Errorf("seq %d, attempt %d: both count from 1", o.Seq, o.Attempt)
	case math.IsNaN(o.Rate) || math.IsInf(o.Rate, 0) || o.Rate < 0:
		return fmt.Errorf("rate %v is not a rate", o.Rate)
	case o.Duration < 0 || o.Scheduled < 0 || o.Offered < 0 || o.Succeeded < 0:
		return fmt.Errorf("trial %d: a duration or count below zero", o.Seq)
	}
	for cause, n := range o.Failed {
		if n < 0 {
			return fmt.Errorf("trial %d: %d failed by %q", o.Seq, n, cause)
		}
	}
	return nil
}

// clean makes an outcome fit for JSON, which has no NaN and no infinity. A use that is not a
// number becomes missing. A latency that is not a number becomes 0, which means unknown.
func clean(o vitrine.Outcome) vitrine.Outcome {
	for _, v := range []*float64{&o.Latency.P50, &o.Latency.P95, &o.Latency.P99} {
		if !finite(*v) {
			*v = 0
		}
	}
	if o.Use == nil {
		return o
	}
	uses := make(map[string]vitrine.Use, len(o.Use))
	for instance, u := range o.Use {
		uses[instance] = cleanUse(u)
	}
	o.Use = uses
	return o
}

func cleanUse(u vitrine.Use) vitrine.Use {
	u.Missing = maps.Clone(u.Missing)
	drop := func(v **float64, what string) {
		if *v == nil || finite(**v) {
			return
		}
		*v = nil
		if u.Missing == nil {
			u.Missing = map[string]string{}
		}
		u.Missing[what] = "not a number"
	}
	drop(&u.CPU, "cpu")
	drop(&u.Memory, "memory")
	drop(&u.RxBytes, "network")
	drop(&u.TxBytes, "network")
	drop(&u.Throttled, "throttled")
	return u
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

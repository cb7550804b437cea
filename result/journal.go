package result

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"

	"vitrine"
)

// A journal is what the bytes of outcomes.jsonl hold.
type journal struct {
	outcomes []vitrine.Outcome
	whole    int64 // length of the part that is whole lines
	unended  bool  // the last outcome is whole, only its newline is missing
	torn     int   // bytes after whole that are no outcome
}

// A lineError says which line of outcomes.jsonl is not an outcome.
type lineError struct {
	line int
	err  error
}

func (e *lineError) Error() string {
	return fmt.Sprintf("%s:%d: not an outcome: %v", journalFile, e.line, e.err)
}

func (e *lineError) Unwrap() error { return e.err }

// readJournal reads outcomes.jsonl. What a killed process leaves is a last line
// without its newline: that is told apart from damage, which is an error of the
// line. With skip, damaged lines are handed to it and passed over.
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

// parseOutcome reads one line and refuses what Append would never have written.
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

// clean makes an outcome fit for JSON, which has no NaN and no infinity: a use
// that is not a number was not read, a latency that is not a number is unknown.
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

package rate

import (
	"fmt"
	"math/bits"

	"vitrine"
)

// bisect looks for the capacity at every threshold by halving.
type bisect struct {
	cfg   Config
	rates []float64
	index map[float64]int // of each rate
	wrong error
}

// NewBisect returns a search that finds, in each repeat on a fresh deployment,
// two neighbouring rates for every threshold: the lower one passes and the higher
// one fails. A trial serves all thresholds. A repeat never begins with the
// highest rate.
//
// The first repeat begins with Min and halves the range. Later ones begin with
// the two rates that the earlier ones show. When these do not hold, the bracket
// moves by 1, 2, 4, ... steps until one holds.
//
// Halving assumes that a function that fails at one rate fails at all higher
// rates, so a single disturbed trial could mislead it. Hence both ends must be
// seen twice, in this repeat or with the same verdict in an earlier one. The
// trials of one rate in a repeat are judged together, and the search goes on when
// that moves an end.
func NewBisect(cfg Config) Search {
	b := &bisect{cfg: cfg, wrong: cfg.Check()}
	if b.wrong == nil {
		b.rates = cfg.rates()
		b.index = make(map[float64]int, len(b.rates))
		for k, rate := range b.rates {
			b.index[rate] = k
		}
	}
	return b
}

// Trials implements Planner: halving and seeing both ends twice in the first
// repeat, and both ends in the later ones.
func (b *bisect) Trials() int {
	n := 1 + bits.Len(uint(len(b.rates))) + (2+2*(b.cfg.Repeat-1))*len(b.cfg.Thresholds)
	return max(n, b.cfg.Repeat)
}

func (b *bisect) Next(history []vitrine.Outcome) Step {
	if b.wrong != nil {
		return Step{Done: true, Why: b.wrong.Error()}
	}
	repeat := 1
	if len(history) > 0 {
		repeat = history[len(history)-1].Repeat
	}
	for ; repeat <= b.cfg.Repeat; repeat++ {
		now, before := b.seen(history, repeat)
		for _, t := range b.cfg.Thresholds {
			if k, why := b.probe(now, before, t); why != "" {
				if n := now[k].invalid; n > 0 {
					why += fmt.Sprintf("; %d invalid so far", n)
				}
				return Step{Rate: b.rates[k], Duration: b.cfg.Duration, Repeat: repeat, Restart: len(now) == 0,
					Why: fmt.Sprintf("%s (threshold %g)", why, t)}
			}
		}
	}
	now, _ := b.seen(history, b.cfg.Repeat)
	return Step{Done: true, Repeat: b.cfg.Repeat,
		Why: fmt.Sprintf("all %d repeats are done: in the last %s", b.cfg.Repeat, b.resultText(now))}
}

// probe returns the index of the rate to try next for the threshold, and why. It
// decides from the trials of this repeat (now) and of the earlier ones (before).
// why is empty when nothing is left to try. The rate has no valid trial yet, or
// is to be seen a second time, so the search ends.
func (b *bisect) probe(now, before tallies, threshold float64) (k int, why string) {
	n := len(b.rates)
	lo, hi := b.bracket(now, threshold)
	from, to := b.bracket(before, threshold)
	from = max(0, min(from, n-2)) // never begin at the top

	switch {
	case lo < 0 && from < hi && from == 0:
		return 0, "the lowest rate, on a fresh deployment"
	case lo < 0 && from < hi:
		return from, "passed in earlier repeats: does it hold on this deployment?"
	case lo < 0 && hi > 0:
		return max(0, hi-max(1, from-hi)), fmt.Sprintf("lower, because %g did not pass", b.rates[hi])
	case hi == n && to < n && to > lo:
		return to, "failed in earlier repeats: does it fail on this deployment?"
	case hi == n && to < n && lo < n-1:
		return min(n-1, lo+lo-to+1), fmt.Sprintf("higher, because %g passed", b.rates[lo])
	case hi-lo > 1:
		return (lo + hi) / 2, fmt.Sprintf("half-way, because %g passed and %s", b.rates[lo], b.upperText(now, hi))
	case hi < n && b.triedOnce(now, hi) && !before.fails(hi, threshold):
		return hi, "again, to be sure that it fails"
	case lo >= 0 && b.triedOnce(now, lo) && !before.passes(lo, threshold):
		return lo, "again, to be sure that it passes"
	}
	return 0, ""
}

// upperText returns what bounds the search from above.
func (b *bisect) upperText(now tallies, hi int) string {
	switch {
	case hi == len(b.rates):
		return "nothing failed yet"
	case now[hi].valid == 0:
		return fmt.Sprintf("%g could not be measured", b.rates[hi])
	default:
		return fmt.Sprintf("%g failed", b.rates[hi])
	}
}

// resultText returns what a finished repeat shows at each threshold.
func (b *bisect) resultText(now tallies) string {
	text := ""
	for i, t := range b.cfg.Thresholds {
		if i > 0 {
			text += "; "
		}
		lo, hi := b.bracket(now, t)
		if lo < 0 {
			text += fmt.Sprintf("no rate passed, %s", b.upperText(now, hi))
		} else {
			text += fmt.Sprintf("%g passed, %s", b.rates[lo], b.upperText(now, hi))
		}
		text += fmt.Sprintf(" (threshold %g)", t)
	}
	return text
}

// bracket returns as hi the lowest index that failed or could not be measured
// (the number of rates when none did), and as lo the highest index below it that
// passed, or -1.
func (b *bisect) bracket(seen tallies, threshold float64) (lo, hi int) {
	lo, hi = -1, len(b.rates)
	for k, t := range seen {
		if k < hi && (seen.fails(k, threshold) || t.valid == 0 && t.invalid >= b.cfg.attempts()) {
			hi = k
		}
	}
	for k := range seen {
		if k > lo && k < hi && seen.passes(k, threshold) {
			lo = k
		}
	}
	return lo, hi
}

// triedOnce reports whether the rate has one valid trial and may have another.
func (b *bisect) triedOnce(now tallies, k int) bool {
	return now[k].valid == 1 && now[k].invalid < b.cfg.attempts()
}

// seen adds up the trials of a repeat, and those of all earlier repeats.
func (b *bisect) seen(history []vitrine.Outcome, repeat int) (now, before tallies) {
	now, before = tallies{}, tallies{}
	for _, o := range history {
		k, ours := b.index[o.Rate]
		switch {
		case ours && o.Repeat == repeat:
			now.add(k, o)
		case ours && o.Repeat < repeat:
			before.add(k, o)
		}
	}
	return now, before
}

// A tally is the sum of the trials of one rate.
type tally struct {
	scheduled, succeeded int64
	valid, invalid       int
}

// tallies has an entry per index of a rate.
type tallies map[int]tally

func (ts tallies) add(k int, o vitrine.Outcome) {
	t := ts[k]
	if counts(o) {
		t.valid++
		t.scheduled += o.Scheduled
		t.succeeded += o.Succeeded
	} else {
		t.invalid++
	}
	ts[k] = t
}

func (ts tallies) passes(k int, threshold float64) bool {
	return ts[k].valid > 0 && ts[k].holds(threshold)
}

func (ts tallies) fails(k int, threshold float64) bool {
	return ts[k].valid > 0 && !ts[k].holds(threshold)
}

func (t tally) holds(threshold float64) bool {
	return t.scheduled > 0 && float64(t.succeeded) >= threshold*float64(t.scheduled)
}

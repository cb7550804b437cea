package policy

import "time"

// A window has the values of the last seconds, oldest first.
type window []sample

type sample struct {
	at    time.Time
	value float64
}

// add adds a value and drops those that are as old as keep, or older.
func (w *window) add(now time.Time, value float64, keep time.Duration) {
	old := 0
	for old < len(*w) && (now.Sub((*w)[old].at) >= keep || now.Before((*w)[old].at)) { // the clock may jump
		old++
	}
	*w = append((*w)[:copy(*w, (*w)[old:])], sample{now, value})
}

// mean returns the mean of the values with an age below younger. 0: there are none.
func (w window) mean(now time.Time, younger time.Duration) float64 {
	sum, n := 0.0, 0
	for i := len(w) - 1; i >= 0 && now.Sub(w[i].at) < younger; i-- {
		sum += w[i].value
		n++
	}
	return sum / float64(max(n, 1))
}

// most returns the highest value; 0: there is none.
func (w window) most() (most float64) {
	for _, s := range w {
		most = max(most, s.value)
	}
	return most
}

package simulate

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// A Load is the mean rate of arrivals in each second, in transactions/s.
type Load []float64

// Peak returns the highest rate.
func (l Load) Peak() float64 {
	if len(l) == 0 {
		return 0
	}
	return slices.Max(l)
}

// Sum returns the expected number of transactions.
func (l Load) Sum() (sum float64) {
	for _, r := range l {
		sum += r
	}
	return sum
}

// MaxSeconds is the length of the longest load in a file, in seconds: a week.
const MaxSeconds = 7 * 86400

// maxRate bounds the rates in a file, in transactions/s, so that sums keep enough precision.
const maxRate = 1e9

// ReadLoad reads a load. Each line has a time in seconds and a rate in transactions/s,
// separated by a comma. Times begin at 0 and increase. ReadLoad skips a heading without
// numbers in the first line, empty lines, and lines that begin with #. It interpolates the rate
// linearly between lines.
func ReadLoad(r io.Reader) (Load, error) {
	lines := bufio.NewScanner(r)
	var load Load
	var before point
	points, number := 0, 0
	for lines.Scan() {
		number++
		text := strings.TrimSpace(lines.Text())
		if text == "" || text[0] == '#' {
			continue
		}
		p, err := parsePoint(text)
		if err != nil {
			if points == 0 && number == 1 {
				continue // the heading
			}
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		switch {
		case points == 0 && p.at != 0:
			return nil, fmt.Errorf("line %d: the first time is %g s: want 0", number, p.at)
		case points > 0 && p.at <= before.at:
			return nil, fmt.Errorf("line %d: time %g s does not follow %g s", number, p.at, before.at)
		}
		if points > 0 {
			load = before.to(p, load)
		}
		before = p
		points++
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(load) == 0 {
		return nil, errors.New("want at least two lines of time,rate, a second apart")
	}
	return load, nil
}

// A point is one line of a load file.
type point struct{ at, rate float64 }

func parsePoint(text string) (p point, err error) {
	at, rate, found := strings.Cut(text, ",")
	if !found {
		return p, fmt.Errorf("%q: want time,rate", text)
	}
	if p.at, err = strconv.ParseFloat(strings.TrimSpace(at), 64); err != nil || !(p.at >= 0) || p.at > MaxSeconds {
		return p, fmt.Errorf("time %q: want seconds, 0 to %d", at, MaxSeconds)
	}
	if p.rate, err = strconv.ParseFloat(strings.TrimSpace(rate), 64); err != nil || !(p.rate >= 0) || p.rate > maxRate {
		return p, fmt.Errorf("rate %q: want transactions/s, 0 to %g", rate, maxRate)
	}
	return p, nil
}

// to appends the rates of the seconds from p to q, interpolated linearly.
func (p point) to(q point, load Load) Load {
	for s := float64(len(load)); s < q.at; s++ {
		load = append(load, p.rate+(q.rate-p.rate)*max(0, s-p.at)/(q.at-p.at))
	}
	return load
}

// Shapes returns the names of the built-in loads.
func Shapes() []string { return []string{"day", "steps", "ramps", "steady"} }

// Shape returns a built-in load with the given peak rate, or false for an unknown name. day
// lasts a day, the others last an hour.
//
//	day     lowest rate at night, a fifth of the usual highest rate; a burst at noon to five times the rate, see Day
//	steps   six levels with sudden changes
//	ramps   rises and falls within five, two and one minutes
//	steady  half of the peak rate
func Shape(name string, peak float64) (Load, bool) {
	switch name {
	case "day":
		return Day(86400, peak), true
	case "steps":
		return levels(3600, peak, 0.2, 0.6, 0.3, 1, 0.5, 0.1), true
	case "ramps":
		return ramps(peak), true
	case "steady":
		return levels(3600, peak, 0.5), true
	}
	return nil, false
}

func levels(seconds int, peak float64, shares ...float64) Load {
	l := make(Load, seconds)
	for i := range l {
		l[i] = peak * shares[i*len(shares)/seconds]
	}
	return l
}

// Day returns the load day, compressed to the given number of seconds. The usual highest rate
// is a third of peak, at 20:00. At noon a burst begins, to five times the rate but at most
// peak. It rises in two minutes, lasts ten, and falls in five. Below 3,600 seconds, Day
// compresses the burst too.
func Day(seconds int, peak float64) Load {
	l := make(Load, seconds)
	usual := peak / 3
	for i := range l {
		hour := 24 * float64(i) / float64(seconds)
		l[i] = usual * (0.6 - 0.4*math.Cos(2*math.Pi*(hour-8)/24))
	}
	begin, part := seconds/2, min(3600, seconds)
	rise, last, fall := max(1, part/30), part/6, max(1, part/12)
	base := l[begin]
	top := min(5*base, peak)
	for i := range rise + last + fall {
		at := &l[begin+i]
		switch {
		case i < rise:
			*at = base + (top-base)*float64(i)/float64(rise)
		case i < rise+last:
			*at = top
		default:
			*at += (top - *at) * (1 - float64(i-rise-last)/float64(fall))
		}
	}
	return l
}

func ramps(peak float64) Load {
	l := make(Load, 3600)
	low := peak / 5
	for i := range l {
		l[i] = low
	}
	at := 300
	for _, rise := range []int{300, 120, 60} {
		for i := range rise + 300 + rise {
			share := min(1, float64(i)/float64(rise), float64(rise+300+rise-i)/float64(rise))
			l[at+i] = low + (peak-low)*share
		}
		at += 1100
	}
	return l
}

// Random draws a load of one hour with rates up to peak: levels, ramps and bursts of random
// lengths.
func Random(seed uint64, peak float64) Load {
	r := rand.New(rand.NewPCG(seed, 0x6c6f6164))
	const length = 3600
	var l Load
	rate := peak * (0.1 + 0.4*r.Float64())
	for len(l) < length {
		next := peak * (0.05 + 0.95*r.Float64()*r.Float64())
		seconds := 1
		switch r.IntN(3) {
		case 0:
			seconds = 10 + r.IntN(60) // nearly a step
		case 1:
			seconds = 60 + r.IntN(300)
		}
		before := rate
		for i := range seconds {
			l = append(l, before+(next-before)*float64(i)/float64(seconds))
		}
		rate = next
		for range 30 + r.IntN(600) {
			l = append(l, rate)
		}
	}
	return l[:length:length]
}

package chain

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"vitrine"
	"vitrine/measure"
	"vitrine/measure/delay"
	"vitrine/result"
)

// A Report holds the results by path.
type Report struct {
	Settings    Settings          `json:"settings"`
	Chains      []Chain           `json:"chains"`
	Unsupported map[string]string `json:"unsupported,omitempty"` // Path -> why it was not measured
	Notes       []string          `json:"notes,omitempty"`
}

// A Chain holds the results of one path.
type Chain struct {
	Path
	Forwarding []string  `json:"forwarding"` // the hops' modes
	Points     []Point   `json:"points"`
	Fits       []Fit     `json:"fits"`            // empty for fewer than three lengths
	Found      []Finding `json:"found,omitempty"` // of the injection

	lengths []int
	repeats int
	streams []measured
}

// measured is a valid stream.
type measured struct {
	Stream
	repeat int
}

// A Point is one length. Intervals are over the repeats.
type Point struct {
	Length    int            `json:"length"`
	Injected  bool           `json:"injected"`
	RoundTrip delay.Interval `json:"round_trip_p50_us"` // of each stream's median
	Mean      delay.Interval `json:"round_trip_mean_us"`
	Least     float64        `json:"round_trip_least_us"` // of all repeats
	P99       delay.Interval `json:"round_trip_p99_us"`
	Jitter    delay.Interval `json:"jitter_mean_us"` // RFC 3550, section 6.4.1
	Sent      int            `json:"sent"`
	Lost      int            `json:"lost"`
	Reordered int            `json:"reordered"`
}

// Mark returns why the chain's results are not comparable; empty: they are comparable.
func (c *Chain) Mark() string {
	for _, s := range c.streams {
		if mark := measure.Mark(s.Accelerator); mark != "" {
			return mark
		}
	}
	return ""
}

// Fit returns the line of that name; ok is false if there is none.
func (c *Chain) Fit(of string) (f Fit, ok bool) {
	i := slices.IndexFunc(c.Fits, func(f Fit) bool { return f.Of == of })
	if i < 0 {
		return f, false
	}
	return c.Fits[i], true
}

// Read returns the report on a run folder's data. It returns a *vitrine.BadInput for a
// run of another kind.
func Read(d *result.Data) (Report, error) {
	s, ok, err := ReadSettings(d.Manifest)
	if err != nil {
		return Report{}, err
	}
	if !ok {
		return Report{}, &vitrine.BadInput{File: d.Dir, Found: "a run that measured no chain", Want: "want a run of vitrine measure chain"}
	}
	return Summarize(s, d.Outcomes, d.Manifest.Unsupported)
}

// Summarize returns the report on the streams. It is pure.
func Summarize(s Settings, outcomes []vitrine.Outcome, unsupported map[string]string) (Report, error) {
	r := Report{Settings: s, Unsupported: maps.Clone(unsupported)}
	streams := map[Path][]measured{}
	failed := map[int]vitrine.Outcome{} // by seq: trials without a valid outcome so far
	for _, o := range outcomes {
		stream, err := ReadStream(o)
		if err != nil {
			return r, err
		}
		if !o.Valid {
			failed[o.Seq] = o
			continue
		}
		delete(failed, o.Seq)
		streams[stream.Path] = append(streams[stream.Path], measured{stream, o.Repeat})
	}
	for _, seq := range slices.Sorted(maps.Keys(failed)) {
		o := failed[seq]
		r.Notes = append(r.Notes, fmt.Sprintf("%s %s, %s, repeat %d: left out after %d attempts: %s", o.Substrate, o.Options, o.Subject, o.Repeat, o.Attempt, o.Reason))
	}
	for _, path := range s.Paths() {
		if len(streams[path]) == 0 {
			continue
		}
		c := Chain{Path: path, lengths: s.Lengths, repeats: s.Repeat, streams: streams[path]}
		c.summarize(s.Inject.Hop)
		r.Chains = append(r.Chains, c)
	}
	return r, nil
}

// fitted returns the values that are fitted against the length.
func (c *Chain) fitted(injected bool) map[string]series {
	return map[string]series{
		RoundTrip:     c.series(injected, func(d delay.Report) float64 { return d.Delay.P50 }),
		RoundTripMean: c.series(injected, func(d delay.Report) float64 { return d.Delay.Mean }),
		RoundTripMin:  c.series(injected, func(d delay.Report) float64 { return d.Delay.Min }).least(),
		Variation:     c.series(injected, func(d delay.Report) float64 { return d.Jitter.Mean }),
	}
}

// summarize computes points, fits and findings from the streams.
func (c *Chain) summarize(hop int) {
	for _, s := range c.streams {
		c.Forwarding = append(c.Forwarding, s.Forwarding...)
	}
	slices.Sort(c.Forwarding)
	c.Forwarding = slices.Compact(c.Forwarding)
	without := c.fitted(false)
	c.points(false, without)
	var with map[string]series
	if hop > 0 {
		with = c.fitted(true)
		c.points(true, with)
	}
	for _, of := range []string{RoundTrip, RoundTripMean, RoundTripMin, Variation} {
		if f, ok := without[of].fit(of); ok {
			c.Fits = append(c.Fits, f)
		}
		if with != nil && of != Variation {
			c.Found = append(c.Found, findInjected(of, hop, without[of], with[of]))
		}
	}
}

// points adds a point for each length.
func (c *Chain) points(injected bool, of map[string]series) {
	tail := c.series(injected, func(d delay.Report) float64 { return d.Delay.P99 })
	for i, length := range c.lengths {
		if len(of[RoundTrip].column(i)) == 0 {
			continue
		}
		p := Point{
			Length: length, Injected: injected,
			RoundTrip: delay.OfRepeats(of[RoundTrip].column(i)), Mean: delay.OfRepeats(of[RoundTripMean].column(i)),
			Least: delay.OfRepeats(of[RoundTripMin].column(i)).Mean,
			P99:   delay.OfRepeats(tail.column(i)), Jitter: delay.OfRepeats(of[Variation].column(i)),
		}
		for _, s := range c.streams {
			if s.Length == length && s.Injected == injected {
				p.Sent, p.Lost, p.Reordered = p.Sent+s.Network.Sent, p.Lost+s.Network.Lost, p.Reordered+s.Network.Reordered
			}
		}
		c.Points = append(c.Points, p)
	}
}

// series returns a figure of the valid streams.
func (c *Chain) series(injected bool, value func(delay.Report) float64) series {
	s := series{lengths: c.lengths}
	for repeat := 1; repeat <= c.repeats; repeat++ {
		row := make([]float64, len(s.lengths))
		for i, length := range s.lengths {
			row[i] = math.NaN()
			for _, stream := range c.streams {
				if stream.repeat == repeat && stream.Length == length && stream.Injected == injected && stream.Network.Received > 0 {
					row[i] = value(stream.Network)
				}
			}
		}
		s.values = append(s.values, row)
	}
	return s
}

package measure

import (
	"fmt"
	"slices"
	"time"

	"vitrine"
	"vitrine/spec"
)

// A Combination is a substrate and a fabric that streams run on.
type Combination struct {
	Substrate string `json:"substrate"`
	Fabric    string `json:"fabric"`
}

func (c Combination) String() string { return c.Substrate + " on " + c.Fabric }

// floor returns the combination that measures the instrument itself.
func floor() Combination { return Combination{Substrate: spec.DefaultSubstrate, Fabric: Floor} }

// A stream is one trial.
type stream struct {
	seq     int
	where   Combination
	repeat  int
	metric  string
	way     string
	size    int
	rate    float64
	id      uint16 // number within its deployment
	packets int
}

// Key returns the attempt's key in the run folder.
func (s stream) Key(attempt int) vitrine.Key {
	name := s.metric
	if s.metric == Latency && s.way == OneWay {
		name = "latency-one-way"
	}
	return vitrine.Key{
		Seq: s.seq, Attempt: attempt, Substrate: s.where.Substrate, Options: fabricOption(s.where.Fabric),
		Subject: fmt.Sprintf("%s-%d", name, s.size), Repeat: s.repeat, Rate: s.rate,
	}
}

// fabricOption returns the Options of a stream's key.
func fabricOption(fabric string) string { return "fabric=" + fabric }

// IsFloor reports whether the outcome is that of a stream of the instrument's floor.
func IsFloor(o vitrine.Outcome) bool { return o.Options == fabricOption(Floor) }

// Span returns the time of sending.
func (s stream) Span() time.Duration { return time.Duration(float64(s.packets) / s.rate * 1e9) }

// A Plan lists the streams of a measurement.
type Plan struct {
	Settings     Settings      `json:"settings"`
	Combinations []Combination `json:"combinations"` // the instrument's floor first
	Streams      int           `json:"streams"`      // trials
	Sending      time.Duration `json:"sending_ns"`   // time of all streams, without deployment

	visits []Visit[stream]
}

// MakePlan orders the streams. Repeats are the outermost loop, so that changes of the host affect
// all combinations alike. ownKernel reports whether a substrate's instances have their own kernel,
// because one-way latency is measured only if one kernel stamps both ends.
func MakePlan(s Settings, ownKernel func(substrate string) bool) (Plan, error) {
	if err := s.Check(); err != nil {
		return Plan{}, err
	}
	p := Plan{Settings: s, Combinations: s.combinations()}
	for repeat := 1; repeat <= s.Repeat; repeat++ {
		for _, where := range p.Combinations {
			v := Visit[stream]{Where: where.String(), Doing: fmt.Sprintf("%s, repeat %d", where, repeat)}
			add := func(metric, way string, size int, rate float64) {
				p.Streams++
				x := stream{p.Streams, where, repeat, metric, way, size, rate, uint16(len(v.Trials) + 1), s.Packets}
				v.Trials = append(v.Trials, x)
				p.Sending += x.Span()
			}
			for _, metric := range s.Metrics {
				switch metric {
				case Latency:
					for _, size := range s.Sizes {
						add(Latency, RoundTrip, size, s.Rates.Latency)
						if !ownKernel(where.Substrate) {
							add(Latency, OneWay, size, s.Rates.Latency)
						}
					}
				case Jitter:
					add(Jitter, OneWay, s.SmallSize, s.Rates.Jitter)
				case Efficiency:
					add(Efficiency, OneWay, s.SmallSize, s.Rates.Efficiency)
				}
			}
			p.visits = append(p.visits, v)
		}
	}
	return p, nil
}

// combinations returns all combinations of the settings, the instrument's floor first.
func (s *Settings) combinations() []Combination {
	list := []Combination{floor()}
	for _, substrate := range s.Substrates {
		for _, fabric := range s.Fabrics {
			list = append(list, Combination{substrate, fabric})
		}
	}
	for _, where := range s.Also {
		if !slices.Contains(list, where) {
			list = append(list, where)
		}
	}
	return list
}

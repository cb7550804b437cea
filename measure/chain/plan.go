package chain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"vitrine"
	"vitrine/measure"
)

// A leg is one stream to measure.
type leg struct {
	seq      int
	path     Path
	repeat   int
	length   int
	injected bool
	settings *Settings
}

// Key returns the attempt's key in the run folder.
func (l leg) Key(attempt int) vitrine.Key {
	name := fmt.Sprintf("length-%d", l.length)
	if l.injected {
		name += "-injected"
	}
	return vitrine.Key{
		Seq: l.seq, Attempt: attempt, Substrate: l.path.Substrate, Options: "fabric=" + l.path.Fabric + " forwarder=" + l.path.Forwarder,
		Subject: name, Repeat: l.repeat, Rate: l.settings.Rate,
	}
}

// Span returns the time of sending.
func (l leg) Span() time.Duration {
	return time.Duration(float64(l.settings.Packets) / l.settings.Rate * 1e9)
}

// A Plan lists the streams of a measurement.
type Plan struct {
	Settings Settings      `json:"settings"`
	Paths    []Path        `json:"paths"`
	Streams  int           `json:"streams"`
	Sending  time.Duration `json:"sending_ns"` // time of all streams, without deployment

	visits []measure.Visit[leg]
}

// MakePlan orders the streams. chains reports whether a fabric's own rules can
// forward; the forwarder OVS needs such a fabric.
func MakePlan(s Settings, chains func(fabric string) bool) (Plan, error) {
	s.Kind = Kind
	if err := s.Check(); err != nil {
		return Plan{}, err
	}
	p := Plan{Settings: s, Paths: s.Paths()}
	p.Paths = slices.DeleteFunc(p.Paths, func(path Path) bool { return path.Forwarder == OVS && !chains(path.Fabric) })
	if len(p.Paths) == 0 {
		return Plan{}, &vitrine.BadInput{File: "--forwarder ovs", Found: "fabrics " + strings.Join(s.Fabrics, ", "), Want: "want --fabric ovs, whose rules can forward"}
	}
	for repeat := 1; repeat <= s.Repeat; repeat++ {
		for _, path := range p.Paths {
			v := measure.Visit[leg]{Where: path.String(), Doing: fmt.Sprintf("deploying %d hops, %s", s.mostHops(), path)}
			for _, injected := range s.injectionOrder(repeat) {
				// Each repeat begins with another length, so that no length is always
				// the first of a deployment.
				for i := range s.Lengths {
					p.Streams++
					length := s.Lengths[(i+repeat-1)%len(s.Lengths)]
					l := leg{seq: p.Streams, path: path, repeat: repeat, length: length, injected: injected, settings: &p.Settings}
					v.Trials = append(v.Trials, l)
					p.Sending += l.Span()
				}
			}
			p.visits = append(p.visits, v)
		}
	}
	return p, nil
}

// injectionOrder returns the order of the streams with and without the injection in a
// repeat. It alternates, so that a drift of the host favours neither.
func (s *Settings) injectionOrder(repeat int) []bool {
	switch {
	case s.Inject.Hop == 0:
		return []bool{false}
	case repeat%2 == 0:
		return []bool{true, false}
	}
	return []bool{false, true}
}

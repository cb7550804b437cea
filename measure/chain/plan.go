package chain

import (
	"fmt"
	"time"

	"vitrine"
)

// A leg is one stream that is to be measured.
type leg struct {
	seq      int
	path     Path
	repeat   int
	length   int
	injected bool
	settings *Settings
}

// key is what the run folder knows the stream by.
func (l leg) key(attempt int) vitrine.Key {
	name := fmt.Sprintf("length-%d", l.length)
	if l.injected {
		name += "-injected"
	}
	return vitrine.Key{
		Seq: l.seq, Attempt: attempt, Substrate: l.path.Substrate, Options: "fabric=" + l.path.Fabric + " forwarder=" + l.path.Forwarder,
		Sizing: name, Repeat: l.repeat, Rate: l.settings.Rate,
	}
}

// A visit is one fresh deployment and its streams, in order.
type visit struct {
	path   Path
	repeat int
	legs   []leg
}

// A Plan is what a measurement will do.
type Plan struct {
	Settings Settings      `json:"settings"`
	Paths    []Path        `json:"paths"`
	Streams  int           `json:"streams"`
	Sending  time.Duration `json:"sending_ns"` // time of all streams, deploying aside

	visits []visit
}

// MakePlan orders the streams.
func MakePlan(s Settings) (Plan, error) {
	s.Kind = Kind
	if err := s.Check(); err != nil {
		return Plan{}, err
	}
	p := Plan{Settings: s, Paths: s.Paths()}
	for repeat := 1; repeat <= s.Repeat; repeat++ {
		for _, path := range p.Paths {
			v := visit{path: path, repeat: repeat}
			for _, injected := range s.sides(repeat) {
				// A repeat begins with another length each time, so that no length is
				// always the first of a deployment.
				for i := range s.Lengths {
					p.Streams++
					length := s.Lengths[(i+repeat-1)%len(s.Lengths)]
					v.legs = append(v.legs, leg{seq: p.Streams, path: path, repeat: repeat, length: length, injected: injected, settings: &p.Settings})
					p.Sending += time.Duration(float64(s.Packets) / s.Rate * 1e9)
				}
			}
			p.visits = append(p.visits, v)
		}
	}
	return p, nil
}

// sides are whether a repeat is measured without and with the injection, in
// turn, so that a drift of the host favours none.
func (s *Settings) sides(repeat int) []bool {
	switch {
	case s.Inject.Hop == 0:
		return []bool{false}
	case repeat%2 == 0:
		return []bool{true, false}
	}
	return []bool{false, true}
}

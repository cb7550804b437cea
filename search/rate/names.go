package rate

import "fmt"

// The searches, by the names that workload files give them.
const (
	Adaptive = "adaptive"
	Ramp     = "ramp"
	Bisect   = "bisect"
	MLR      = "mlr"
)

// Names returns all searches, the default first.
func Names() []string { return []string{Adaptive, Ramp, Bisect, MLR} }

// New returns the search with that name.
func New(name string, cfg Config) (Search, error) {
	switch name {
	case Adaptive:
		return NewAdaptive(cfg), nil
	case Ramp:
		return NewRamp(cfg), nil
	case Bisect:
		return NewBisect(cfg), nil
	case MLR:
		return NewMLR(cfg), nil
	}
	return nil, fmt.Errorf("search %q: want one of %v", name, Names())
}

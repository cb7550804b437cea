package config

import (
	"fmt"
	"time"

	"go.yaml.in/yaml/v3"
)

// Redline says when redline measures on live traffic what an instance of the type carries.
type Redline struct {
	Every   time.Duration `yaml:"every" jsonschema:"format=positive-duration"`                    // Time from one measurement to the next; left out: the clock causes none.
	Drift   float64       `yaml:"drift" jsonschema:"minimum=0.05,maximum=1"`                      // Share by which the CPU time of a transaction departs from the profile's when a measurement is due, such as 0.2; left out: CPU causes none.
	Share   float64       `yaml:"share" jsonschema:"exclusiveMinimum=0,maximum=0.95,default=0.9"` // Largest share of the type's traffic to put on the instance.
	Step    time.Duration `yaml:"step" jsonschema:"format=positive-duration,default=10s"`         // Shortest measurement of a step.
	MaxStep time.Duration `yaml:"max_step" jsonschema:"format=positive-duration,default=5m"`      // Longest measurement of a step.
}

// UnmarshalYAML decodes the section on top of its defaults.
func (r *Redline) UnmarshalYAML(n *yaml.Node) error {
	type plain Redline
	*r = Redline{Share: 0.9, Step: 10 * time.Second, MaxStep: 5 * time.Minute}
	return n.Decode((*plain)(r))
}

// redline checks the redline section of a type, and the type's settings that redline needs.
func (v *validator) redline(c *Config, i int) {
	t := &c.Types[i]
	r := t.Redline
	if r == nil {
		return
	}
	at := func(name string) []any { return []any{"types", i, "redline", name} }
	switch {
	case r.Every == 0 && r.Drift == 0:
		v.Bad("redline without every and drift", "give one or both: every: 24h, drift: 0.2", "types", i, "redline")
	case r.Step < time.Second:
		v.Bad("a step of "+r.Step.String(), "want at least 1s", at("step")...)
	case r.MaxStep < r.Step:
		v.Bad(fmt.Sprintf("max_step %s below step %s", r.MaxStep, r.Step), "want at least step", at("max_step")...)
	case r.Every > 0 && r.Every < r.MaxStep:
		v.Bad("a measurement every "+r.Every.String(), fmt.Sprintf("want at least max_step, which is %s", r.MaxStep), at("every")...)
	case r.Drift > 0 && t.Polling:
		v.Bad("drift of members that poll", "their CPU use says nothing: leave drift out", at("drift")...)
	}
	switch o := t.Objective; {
	case o.P99 < time.Millisecond || !(o.Success > 0 && o.Success < 1):
		v.Bad("redline without a whole objective", "want objective: {p99: at least 1ms, success: above 0 and below 1}", "types", i, "redline")
	case t.Max <= t.Min:
		v.Bad(fmt.Sprintf("redline with max %d and min %d", t.Max, t.Min), "min healthy instances must be there beside the one that is measured: want max above min", "types", i, "redline")
	}
}

package spec

import (
	"strings"
	"time"

	"vitrine/document"
)

// A Choice is one combination of values of the servers' options.
type Choice struct {
	Substrate string        `json:"substrate"`
	Fabric    string        `json:"fabric"`
	Pinning   bool          `json:"pinning"`
	CFSPeriod time.Duration `json:"cfs_period_ns"`
	KeepAwake bool          `json:"keep_awake"`
	// Impairment names a variant of the impaired links; empty: there are none.
	Impairment string `json:"impairment,omitempty"`
	// Options lists the values of options that have several values in the file,
	// for example "fabric=bridge,pinning=on,cfs_period=20ms". It omits the
	// substrate, because every result names it. It is empty when no option
	// varies.
	Options string `json:"options"`
}

// Choices returns the Cartesian product of the options, in the order of the
// file; the last option varies fastest. The search runs once per choice, as the
// paper runs it with and without core pinning (NFV-VITAL, III.B.1).
func (s Servers) Choices() []Choice {
	var choices []Choice
	for _, substrate := range s.Substrate {
		for _, fabric := range s.Fabric {
			for _, pinning := range s.Pinning {
				for _, period := range s.CFSPeriod {
					for _, awake := range s.KeepAwake {
						for _, impairment := range s.impairments() {
							c := Choice{Substrate: substrate, Fabric: fabric, Pinning: bool(pinning), CFSPeriod: period, KeepAwake: bool(awake), Impairment: impairment}
							c.Options = s.describeOptions(c)
							choices = append(choices, c)
						}
					}
				}
			}
		}
	}
	return choices
}

// impairments returns the names of the variants to measure, or one empty name.
func (s Servers) impairments() []string {
	if len(s.Impairment) == 0 {
		return []string{""}
	}
	return s.Impairment
}

// describeOptions returns Choice.Options for the choice.
func (s Servers) describeOptions(c Choice) string {
	var options []string
	for _, o := range []struct {
		name   string
		values int
		value  string
	}{
		{"fabric", len(s.Fabric), c.Fabric},
		{"pinning", len(s.Pinning), document.Switch(c.Pinning).String()},
		{"cfs_period", len(s.CFSPeriod), c.CFSPeriod.String()},
		{"keep_awake", len(s.KeepAwake), document.Switch(c.KeepAwake).String()},
		{"impairment", len(s.Impairment), c.Impairment},
	} {
		if o.values > 1 {
			options = append(options, o.name+"="+o.value)
		}
	}
	return strings.Join(options, ",")
}

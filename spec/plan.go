package spec

import (
	"strings"
	"time"

	"vitrine/document"
)

// A Choice is one value of each of the servers' options.
type Choice struct {
	Substrate string
	Fabric    string
	Pinning   bool
	CFSPeriod time.Duration
	KeepAwake bool
	// Options names the values of the options that were given several, but for
	// the substrate, which every result names anyway:
	// "fabric=bridge,pinning=on,cfs_period=20ms". Empty when none varies.
	Options string
}

// Choices is the options' cartesian product, in the order of the file; the last
// option varies fastest. As the paper runs a search with and without core
// pinning (NFV-VITAL, III.B.1), the search is run once per choice.
func (s Servers) Choices() []Choice {
	var choices []Choice
	for _, substrate := range s.Substrate {
		for _, fabric := range s.Fabric {
			for _, pinning := range s.Pinning {
				for _, period := range s.CFSPeriod {
					for _, awake := range s.KeepAwake {
						c := Choice{Substrate: substrate, Fabric: fabric, Pinning: bool(pinning), CFSPeriod: period, KeepAwake: bool(awake)}
						c.Options = s.varied(c)
						choices = append(choices, c)
					}
				}
			}
		}
	}
	return choices
}

// varied names the choice's values of the options that were given several.
func (s Servers) varied(c Choice) string {
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
	} {
		if o.values > 1 {
			options = append(options, o.name+"="+o.value)
		}
	}
	return strings.Join(options, ",")
}

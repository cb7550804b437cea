package spec

import (
	"strings"
	"time"
)

// A Choice is one value of each of the servers' options.
type Choice struct {
	Substrate string
	Fabric    string
	Pinning   bool
	CFSPeriod time.Duration
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
					var options []string
					if len(s.Fabric) > 1 {
						options = append(options, "fabric="+fabric)
					}
					if len(s.Pinning) > 1 {
						options = append(options, "pinning="+pinning.String())
					}
					if len(s.CFSPeriod) > 1 {
						options = append(options, "cfs_period="+period.String())
					}
					choices = append(choices, Choice{substrate, fabric, bool(pinning), period, strings.Join(options, ",")})
				}
			}
		}
	}
	return choices
}

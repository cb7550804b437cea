package trial

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"vitrine"
	"vitrine/search/size"
)

// saveProfile writes the capacity of every size, measured or predicted, into the run folder. If
// the campaign measured nothing, it writes no profile.
func (c *Campaign) saveProfile() error {
	if len(c.found) == 0 {
		return nil
	}
	p, err := c.profile()
	if err != nil {
		return fmt.Errorf("capacity profile: %w", err)
	}
	before, err := c.Results.Profile()
	if err != nil {
		c.Log.Warn("sizes that the resumed run does not deploy again have no boot time", "error", err)
	}
	keepBoots(&p, before)
	return c.Results.SaveProfile(p)
}

// keepBoots copies data from the profile of the run before it was resumed: the boot times of sizes
// that are not deployed again, and whether instances boot without quota.
func keepBoots(p, before *vitrine.Profile) {
	if before == nil {
		return
	}
	type key struct{ substrate, options, sizing string }
	boots, unlimited := map[key]float64{}, map[key]bool{}
	for _, s := range before.Settings {
		unlimited[key{s.Substrate, s.Options, ""}] = s.Unlimited
		for _, z := range s.Sizes {
			boots[key{s.Substrate, s.Options, z.Sizing}] = z.Boot
		}
	}
	for k := range p.Settings {
		s := &p.Settings[k]
		s.Unlimited = s.Unlimited || unlimited[key{s.Substrate, s.Options, ""}]
		for i := range s.Sizes {
			if z := &s.Sizes[i]; z.Source == vitrine.SourceMeasured && z.Boot == 0 {
				z.Boot = boots[key{s.Substrate, s.Options, z.Sizing}]
			}
		}
	}
}

func (c *Campaign) profile() (vitrine.Profile, error) {
	manifest := c.Results.Manifest()
	p := vitrine.Profile{
		Version: vitrine.ProfileVersion, Function: c.Deployment.VNFName, Unit: c.Workload.Unit,
		Thresholds: c.Workload.Thresholds, Confidence: cmp.Or(c.Workload.Confidence, 0.95),
		Provenance: vitrine.ProfileSource{Tool: manifest.Tool, Specs: map[string]string{}},
	}
	for _, s := range manifest.Specs {
		p.Provenance.Specs[s.Role] = s.SHA256
	}
	trials := sha256.New()
	lines := json.NewEncoder(trials)
	accelerators := map[[2]string]string{}
	for _, o := range c.Results.Outcomes() {
		of := [2]string{o.Substrate, o.Options}
		if o.Accelerator != "" && accelerators[of] != vitrine.Emulation { // one emulated trial marks all of them
			accelerators[of] = o.Accelerator
		}
		if err := lines.Encode(o); err != nil {
			return p, err
		}
	}
	p.Provenance.Outcomes = hex.EncodeToString(trials.Sum(nil))
	for _, choice := range c.choices {
		var measured []size.Profiled
		unlimited := false
		for _, f := range c.found {
			if f.choice == choice {
				measured, unlimited = append(measured, f.Profiled), unlimited || f.unlimited
			}
		}
		if len(measured) == 0 {
			continue
		}
		s := size.Setting(c.space, measured, c.Seed)
		s.Substrate, s.Options, s.Unlimited = choice.Substrate, choice.Options, unlimited
		s.Accelerator = accelerators[[2]string{choice.Substrate, choice.Options}]
		p.Settings = append(p.Settings, s)
	}
	return p, p.Check()
}

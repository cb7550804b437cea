package trial

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"vitrine"
	"vitrine/search/size"
	"vitrine/spec"
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
		Thresholds: c.Workload.Thresholds, Confidence: searchConfig(c.Workload.Search, c.rateConfig()).Claimed(),
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
		s, found := c.setting(choice)
		if !found {
			continue
		}
		s.Accelerator = accelerators[[2]string{choice.Substrate, choice.Options}]
		p.Settings = append(p.Settings, s)
	}
	return p, p.Check()
}

// setting returns the sizes under one choice of the options, and false if there are none. The model
// that predicts sizes is not fitted to a size whose search did not end.
func (c *Campaign) setting(choice spec.Choice) (_ vitrine.Setting, found bool) {
	var ended []size.Profiled
	var stopped []*finding // the campaign ended with it; several if the sizings were measured in turns
	unlimited := false
	for i := range c.found {
		f := &c.found[i]
		switch {
		case f.choice != choice:
			continue
		case f.unfinished != "":
			stopped = append(stopped, f)
		default:
			ended = append(ended, f.Profiled)
		}
		unlimited = unlimited || f.unlimited
	}
	if len(ended) == 0 && len(stopped) == 0 {
		return vitrine.Setting{}, false
	}
	s := size.Setting(c.space, ended, c.Seed)
	s.Substrate, s.Options, s.Unlimited = choice.Substrate, choice.Options, unlimited
	for _, f := range stopped {
		again := func(p size.Profiled) bool { return p.Sizing.String() == f.Sizing.String() }
		if !slices.ContainsFunc(ended, again) { // otherwise the earlier measurement counts
			s.Sizes = c.withStopped(s.Sizes, f)
		}
	}
	return s, true
}

// withStopped adds the size whose search did not end. It replaces a prediction of the size.
func (c *Campaign) withStopped(sizes []vitrine.SizeProfile, f *finding) []vitrine.SizeProfile {
	name := f.Sizing.String()
	named := func(z vitrine.SizeProfile) bool { return z.Sizing == name }
	sizes = slices.DeleteFunc(sizes, named)
	for _, z := range size.Setting(c.space, []size.Profiled{f.Profiled}, c.Seed).Sizes {
		if named(z) {
			z.Unfinished = f.unfinished
			sizes = append(sizes, z)
		}
	}
	slices.SortStableFunc(sizes, func(a, b vitrine.SizeProfile) int {
		return cmp.Or(cmp.Compare(a.VCPUs, b.VCPUs), cmp.Compare(a.Memory, b.Memory))
	})
	return sizes
}

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"vitrine"
	"vitrine/spec"
)

// predictFlags are the flags of predict.
type predictFlags struct {
	rate       float64
	deployment string
	json       bool
}

func (a *app) predictCommand() *cobra.Command {
	var f predictFlags
	c := &cobra.Command{
		Use:   "predict PROFILE",
		Short: "Find the size that carries a rate, from a capacity profile",
		Long: "Print the size with the fewest vCPUs that carries a rate for sure, and the component\n" +
			"that saturates first. A size carries a rate for sure if the lower end of its\n" +
			"capacity's interval is at least the rate, whether it was measured or predicted. A\n" +
			"size whose search for the capacity did not end carries no rate for sure.",
		Example: "  vitrine predict runs/ims/profile.json --rate 300\n" +
			"  vitrine predict runs/ims/profile.json --rate 300 --deployment deployment.yaml --json",
		Args: args(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, given []string) error { return a.predict(given[0], f) },
	}
	c.Flags().Float64Var(&f.rate, "rate", 0, "the rate to carry, in the profile's unit")
	c.Flags().StringVar(&f.deployment, "deployment", "", "check that the profile is of this deployment's function and sizes")
	c.Flags().BoolVar(&f.json, "json", false, "print as JSON")
	return c
}

// An answer is the JSON output of predict.
type answer struct {
	Function  string  `json:"function"`
	Rate      float64 `json:"rate"`
	Unit      string  `json:"unit"`
	Threshold float64 `json:"threshold"`
	Substrate string  `json:"substrate"`
	Options   string  `json:"options"`

	Confidence    float64 `json:"confidence"`               // of the interval, 0..1; 0: it claims none
	Accelerator   string  `json:"accelerator,omitempty"`    // of virtual machines
	NotComparable string  `json:"not_comparable,omitempty"` // the reason, if so

	Beyond []string `json:"beyond,omitempty"` // limits of the measured sizes that the prediction exceeds
	vitrine.SizeProfile
}

func (a *app) predict(path string, f predictFlags) error {
	if !(f.rate > 0) || f.rate > 1e300 {
		return &vitrine.BadInput{File: "--rate", Found: fmt.Sprint(f.rate), Want: "want the rate to carry, above 0"}
	}
	p, err := readProfile(path)
	if err != nil {
		return err
	}
	var d *spec.Deployment
	if f.deployment != "" {
		if d, err = loadProfiledDeployment(path, p, f.deployment); err != nil {
			return err
		}
	}
	chosen, most := p.Carrying(f.rate)
	switch {
	case most == nil:
		return &vitrine.BadInput{File: path, Found: "no size in it carries any rate for sure", Want: "characterize with a lower range" + unfinished(p)}
	case chosen == nil:
		return &vitrine.BadInput{File: path, Found: fmt.Sprintf("no size in it carries %s %s for sure", vitrine.Digits(f.rate), p.Unit),
			Want: fmt.Sprintf("the most is %s %s, by %s (%s)", vitrine.Digits(most.Size.Low), p.Unit, most.Size.Sizing, most.Size.Source) + unfinished(p)}
	}
	if d != nil {
		sizing, err := vitrine.ParseSizing(chosen.Size.Sizing)
		if err == nil {
			err = d.CheckSizing(sizing)
		}
		if err != nil {
			return fmt.Errorf("%s is not of %s: %w", path, f.deployment, err)
		}
		if err := checkResources(path, chosen.Size, f.deployment, d.Resources(sizing)); err != nil {
			return err
		}
	}
	if f.json {
		return json.NewEncoder(a.stdout).Encode(answer{p.Function, f.rate, p.Unit, p.Thresholds[0],
			chosen.Setting.Substrate, chosen.Setting.Options, p.Confidence,
			chosen.Setting.Accelerator, vitrine.NotComparable(chosen.Setting.Accelerator), beyond(p, f.rate, chosen), *chosen.Size})
	}
	return a.printPrediction(p, f.rate, chosen)
}

// unfinished names the size whose search for the capacity did not end, if there is one. There is at
// most one, because a run that is stopped measures no further size.
func unfinished(p *vitrine.Profile) string {
	for _, s := range p.Settings {
		for _, z := range s.Sizes {
			if z.Unfinished != "" {
				return fmt.Sprintf("; the search for the capacity of %s did not end (%s): continue its run with --resume", z.Sizing, z.Unfinished)
			}
		}
	}
	return ""
}

// checkResources refuses a size that has other resources in the deployment than in the profile.
func checkResources(path string, z *vitrine.SizeProfile, deployment string, r vitrine.Resources) error {
	const rounding = 1e-8 // of vCPUs in a profile
	if math.Abs(r.VCPUs-z.VCPUs) < rounding && r.Memory == z.Memory {
		return nil
	}
	return &vitrine.BadInput{File: path, Found: fmt.Sprintf("size %s has %.4g vCPUs and %d bytes, but in %s %.4g and %d", z.Sizing, z.VCPUs, z.Memory, deployment, r.VCPUs, r.Memory),
		Want: "characterize again, or name the deployment with which the profile was made"}
}

// readProfile reads a profile. A file without a valid profile is a BadInput.
func readProfile(path string) (*vitrine.Profile, error) {
	text, err := os.ReadFile(path)
	var p *vitrine.Profile
	if err == nil {
		p, err = vitrine.ParseProfile(text)
	}
	if err != nil {
		return nil, &vitrine.BadInput{File: path, Found: err.Error(), Want: "name a capacity profile (profile.json in a run folder)"}
	}
	return p, nil
}

// loadProfiledDeployment reads the deployment. It refuses a deployment of another function than
// the profile's.
func loadProfiledDeployment(path string, p *vitrine.Profile, deployment string) (*spec.Deployment, error) {
	d, err := spec.LoadDeployment(deployment, knownBackends())
	if err != nil {
		return nil, err
	}
	if d.VNFName != p.Function {
		return nil, &vitrine.BadInput{File: path, Found: fmt.Sprintf("a profile of %s, but %s is of %s", p.Function, deployment, d.VNFName),
			Want: "name the profile of this function, or characterize it"}
	}
	return d, nil
}

// beyond returns which limits of the sizes whose capacity was measured a prediction exceeds: "at most 2
// sp", "at most 980 calls/s". Nothing shows that the rest of the function, such as its entry, carries
// more. A measured size exceeds none.
func beyond(p *vitrine.Profile, rate float64, c *vitrine.Choice) (limits []string) {
	if c.Size.Source == vitrine.SourceMeasured {
		return nil
	}
	most, highest := map[string]int{}, 0.0
	for _, z := range c.Setting.Sizes {
		sizing, err := vitrine.ParseSizing(z.Sizing)
		if err != nil || z.Source != vitrine.SourceMeasured || z.Unfinished != "" {
			continue
		}
		highest = max(highest, z.High)
		for _, part := range sizing {
			most[part.Short] = max(most[part.Short], part.Count)
		}
	}
	sizing, _ := vitrine.ParseSizing(c.Size.Sizing) // readProfile checked it
	for _, part := range sizing {
		if n := most[part.Short]; part.Count > n {
			limits = append(limits, fmt.Sprintf("at most %d %s", n, part.Short))
		}
	}
	if rate > highest {
		limits = append(limits, fmt.Sprintf("at most %s %s", vitrine.Digits(highest), p.Unit))
	}
	return limits
}

func (a *app) printPrediction(p *vitrine.Profile, rate float64, c *vitrine.Choice) error {
	z := c.Size
	on := c.Setting.Substrate
	if c.Setting.Options != "" {
		on += ", " + c.Setting.Options
	}
	least, interval := "", fmt.Sprintf("[%s, %s]", vitrine.Digits(z.Low), vitrine.Digits(z.High))
	if z.Censored == vitrine.CensoredAbove || z.Censored == vitrine.CensoredGenerator { // High is only the highest rate tried
		least, interval = "at least ", fmt.Sprintf("from %s up", vitrine.Digits(z.Low))
	}
	surely, confidence := "", ""
	if p.Confidence > 0 {
		surely, confidence = " for sure", fmt.Sprintf("%.4g%% ", 100*p.Confidence)
	}
	lines := [][2]string{
		{"size", fmt.Sprintf("%s, the fewest vCPUs that carry %s %s%s", z.Sizing, vitrine.Digits(rate), p.Unit, surely)},
		{"vcpus", fmt.Sprintf("%.4g", z.VCPUs)},
		{"capacity", fmt.Sprintf("%s%s %s at success ratio %.4g, %sinterval %s", least, vitrine.Digits(z.Rate), p.Unit,
			p.Thresholds[0], confidence, interval)},
		{"saturates first", cmp.Or(z.Bottleneck, "not known")},
		{"known by", map[string]string{vitrine.SourceMeasured: "measurement of this size", vitrine.SourcePredicted: "prediction from other sizes"}[z.Source]},
		{"on", on},
	}
	if p.Confidence == 0 {
		lines = append(lines, [2]string{"beware", "the interval claims no confidence: the search was mlr or deployed each size only once"})
	}
	if why := vitrine.NotComparable(c.Setting.Accelerator); why != "" {
		lines = append(lines, [2]string{"beware", why})
	}
	if limits := beyond(p, rate, c); len(limits) > 0 {
		lines = append(lines, [2]string{"beware", "beyond the sizes whose capacity was measured: " + strings.Join(limits, ", ")})
	}
	for _, line := range lines {
		if _, err := fmt.Fprintf(a.stdout, "%-16s %s\n", line[0], line[1]); err != nil {
			return err
		}
	}
	return nil
}

package trial

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"vitrine"
	"vitrine/search/rate"
	"vitrine/search/size"
	"vitrine/spec"
	"vitrine/testbed/deploy"
)

// A Plan is the work of a campaign, as far as it is known before the start.
type Plan struct {
	Combinations []spec.Choice    `json:"combinations"` // of the options with several values
	Sizings      []vitrine.Sizing `json:"-"`            // all of them, or the first of an open search
	Names        []string         `json:"sizings"`
	Open         bool             `json:"open"`              // the measurements decide on further sizings
	MostSizings  int              `json:"most_sizings"`      // per combination
	Lowered      string           `json:"lowered,omitempty"` // says that the function's CPUs lower the file's limit, or add to it
	Trials       int              `json:"trials_per_sizing"` // estimate, without invalid ones
	Trial        time.Duration    `json:"trial_ns"`          // warm-up, window and settling of one, on average
	About        time.Duration    `json:"about_ns"`          // estimate for the whole campaign, without deployment
}

// plan makes the Plan. It refuses sizings for which this host has too few CPUs.
func (c *Campaign) plan() (p Plan, err error) {
	p = Plan{Combinations: c.choices, Open: true, Lowered: c.lowered()}
	if known, ok := c.search.(size.Planner); ok {
		p.Sizings, p.Open = known.Plan(), false
	} else if step := c.search.Next(nil); !step.Done {
		p.Sizings = []vitrine.Sizing{step.Sizing}
	}
	p.MostSizings = len(p.Sizings)
	if p.Open {
		if p.MostSizings, err = c.mostSizings(); err != nil {
			return p, c.located(err)
		}
	}
	for _, s := range p.Sizings {
		p.Names = append(p.Names, s.String())
		if err := c.fits(s); err != nil {
			return p, err
		}
	}
	rates, err := c.rateSearch(c.rateConfig())
	if err != nil {
		return p, err
	}
	if known, ok := rates.(rate.Planner); ok {
		p.Trials = known.Trials()
	}
	window := c.Workload.Duration
	if c.Workload.Search == spec.Adaptive && c.Rates == nil {
		p.Trials, window = adaptiveTrials(c.Workload)
	}
	p.Trial = c.Workload.Warmup + window + c.Workload.Settle
	p.About = time.Duration(len(p.Combinations)*p.MostSizings*p.Trials) * p.Trial
	return p, nil
}

// AdaptiveDeployments is how many fresh deployments of a sizing the search adaptive mostly needs, if
// not more.
const AdaptiveDeployments = 8

// adaptiveTrials estimates how many trials the search adaptive makes for a sizing, and the mean
// length of their windows. It scouts, makes ordinary and long trials on each deployment, and ends
// with a contrast. The lengths are those of package rate at the middle of the range.
func adaptiveTrials(w *spec.Workload) (trials int, window time.Duration) {
	const scoutingAndContrast, each = 11, 2
	d, precision := w.Duration.Seconds(), cmp.Or(w.Precision, 0.05)
	backlog := 9 / (precision * precision * math.Sqrt(w.Range.Min()*w.Range.Max())) // seconds to tell whether it grows
	ordinary := min(max(d, backlog), 8*d)
	long := min(max(3*ordinary, 6*backlog, 2.4/precision), 16*d)
	deployed := each * max(AdaptiveDeployments, w.Repeat)
	trials = scoutingAndContrast + 2*deployed
	seconds := float64(scoutingAndContrast+deployed)*ordinary + float64(deployed)*long
	return trials, time.Duration(seconds / float64(trials) * float64(time.Second)).Round(100 * time.Millisecond)
}

// located adds the position of the mode in the file to an error of the size search.
func (c *Campaign) located(err error) error {
	if bad := (*vitrine.BadInput)(nil); errors.As(err, &bad) {
		return c.Deployment.BadInput(bad.Found, bad.Want, "mode")
	}
	return err
}

// place lists the instances of a sizing under one choice of the options, with their CPUs, in the
// order in which components start. It returns a *vitrine.Unsupported if the function has too few
// CPUs for the sizing.
func (c *Campaign) place(sizing vitrine.Sizing, choice spec.Choice) ([]deploy.Planned, error) {
	all := c.function(sizing).Plan()
	demands := make([]demand, len(all))
	for i, p := range all {
		demands[i] = demand{p.Name, p.Flavor.VCPUs, p.Flavor.Pin}
	}
	cpus, err := assign(c.CPUs.Function, choice.Pinning, demands)
	if err != nil {
		return nil, fmt.Errorf("sizing %s: %w", sizing, err)
	}
	for i := range all {
		all[i].CPUs = cpus[all[i].Name]
	}
	return all, nil
}

// function returns what to deploy at a sizing.
func (c *Campaign) function(sizing vitrine.Sizing) deploy.Function {
	return deploy.Function{Deployment: c.Deployment, Sizing: sizing}
}

// fits checks the sizing against the CPUs reserved for the function, under every choice of the
// options.
func (c *Campaign) fits(s vitrine.Sizing) error {
	for _, choice := range c.choices {
		if _, err := c.place(s, choice); err != nil {
			return err
		}
	}
	return nil
}

// mostSizings returns an upper bound on the number of sizings that an open search measures. A
// search by a model measures each sizing once, and the best one again. A directed search grows one
// component by one flavor or by one instance in each step.
func (c *Campaign) mostSizings() (int, error) {
	space := c.space
	if c.Deployment.Mode.Name == spec.Model {
		all, err := size.NewExhaustive(space)
		if err != nil {
			return 0, err
		}
		return len(all.(size.Planner).Plan()) + 1, nil
	}
	steps := 0
	for range space.Components {
		if c.Deployment.Mode.Scaling != spec.ScaleUp {
			steps += int(space.Limit.VCPUs/space.Flavors[0].VCPUs+floatSlack) - 1
		}
		if c.Deployment.Mode.Scaling != spec.ScaleOut {
			steps += len(space.Flavors) - 1
		}
	}
	return steps + 1, nil
}

// room returns the vCPUs that the function's CPUs leave to the scalable components.
func (c *Campaign) room() float64 {
	smallest := c.Deployment.Space().Smallest()
	fixed := c.Deployment.Total(smallest).VCPUs - c.Deployment.Resources(smallest).VCPUs
	const none = 1e-12 // a limit of 0 would mean no limit
	return max(none, float64(len(c.CPUs.Function))-fixed)
}

// lowers reports whether the function's CPUs lower the limit that the file gives, or add vCPUs to a
// limit of memory alone. They do not for exhaustive: it promises all sizings within the limit, so
// plan refuses those that do not fit.
func (c *Campaign) lowers() bool {
	m := c.Deployment.Mode
	memoryAlone := m.Limit.VCPUs == 0 && m.Limit.Memory > 0
	return m.Name != spec.Exhaustive && (memoryAlone || m.Limit.VCPUs > c.room()+floatSlack)
}

// lowered tells the user how the limit differs from the file's, or returns "".
func (c *Campaign) lowered() string {
	if !c.lowers() {
		return ""
	}
	room := fmt.Sprintf("%.4g vCPUs, which the function's CPUs %v leave to the scalable components", c.room(), c.CPUs.Function)
	if given := c.Deployment.Mode.Limit.VCPUs; given > 0 {
		return fmt.Sprintf("the limit is lowered from %.4g to %s", given, room)
	}
	return "besides the limit of memory there is one of " + room
}

// sizeSpace returns the space of the deployment's sizings. Without a limit, or with one that the
// function's CPUs lower, the room on these CPUs is its limit of vCPUs.
func (c *Campaign) sizeSpace() size.Space {
	from := c.Deployment.Space()
	space := size.Space{Components: from.Components, Flavors: from.Flavors, Limit: from.Limit, Counts: map[string]size.Count{}, Place: c.fits}
	for short, count := range from.Counts {
		space.Counts[short] = size.Count(count)
	}
	if space.Limit == (vitrine.Resources{}) || c.lowers() {
		space.Limit.VCPUs = c.room()
	}
	return space
}

// sizeSearch makes the search that the deployment's mode names.
func (c *Campaign) sizeSearch(space size.Space) (size.Search, error) {
	m := c.Deployment.Mode
	switch m.Name {
	case spec.Custom:
		return size.NewCustom(c.Deployment.Sizings()), nil
	case spec.Exhaustive:
		space.Place = nil // the user asks for all sizings, so one that does not fit is refused and not left out
		return size.NewExhaustive(space)
	case spec.Directed:
		return size.NewDirected(space, size.DirectedConfig{Scaling: m.Scaling, ScaleOn: m.ScaleOn, Reach: m.Reach, Seed: c.Seed})
	case spec.Model:
		return size.NewModel(space, size.ModelConfig{Objective: m.Objective, Reach: m.Reach, Unit: c.Workload.Unit, Seed: c.Seed})
	}
	return nil, fmt.Errorf("mode %q: want custom, exhaustive, directed or model", m.Name)
}

// rateConfig returns the workload's configuration of the rate search.
func (c *Campaign) rateConfig() rate.Config {
	w := c.Workload
	return rate.Config{
		Min: w.Range.Min(), Max: w.Range.Max(), Increase: w.Increase, Duration: w.Duration,
		Repeat: w.Repeat, Thresholds: w.Thresholds, Seed: c.Seed, Stop: w.StopWhen(),
		Precision: w.Precision, Confidence: w.Confidence,
		Overhead: w.Warmup + w.Settle, Stateful: c.Deployment.Stateful,
	}
}

// rateSearch makes the rate search that the Config gives or the workload names.
func (c *Campaign) rateSearch(cfg rate.Config) (rate.Search, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	if c.Rates != nil {
		return c.Rates(cfg)
	}
	return rate.New(c.Workload.Search, cfg)
}

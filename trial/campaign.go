// Package trial runs campaigns (NFV-VITAL, section III). A campaign deploys a function at one
// sizing after the other, or at all of them in turns. It drives each sizing at the rates that a
// search asks for, monitors it, and appends every outcome to the results.
package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"vitrine"
	"vitrine/result"
	"vitrine/search/rate"
	"vitrine/search/size"
	"vitrine/spec"
	"vitrine/testbed"
	"vitrine/testbed/quiet"
)

// A Config is a campaign to run. New needs only the first four fields; the others
// may be set until Run.
type Config struct {
	Deployment *spec.Deployment
	Workload   *spec.Workload
	CPUs       testbed.CPUs
	Seed       uint64 // of all random draws

	Testbed testbed.Config
	// Generator is the program of the workload's generator with its first arguments.
	Generator func(name string) ([]string, error)
	Results   *result.Run
	MaxTime   time.Duration // no trial begins after it; 0: no limit
	Grace     time.Duration // a generator that still runs this long after its trial's time counts as hung; 0: a minute after the last calls
	Observe   func(Event)   // progress; called from one goroutine
	// Watch begins to read the host for one trial. If nil, trials are not checked for disturbance
	// by the host.
	Watch quiet.Watcher
	// Rates makes the search for rates. If nil, it is the search that the workload names.
	Rates func(rate.Config) (rate.Search, error)
	Log   *slog.Logger
}

// A Campaign is a Config with its plan. It runs once.
type Campaign struct {
	Config
	Plan Plan

	choices []spec.Choice
	space   size.Space
	search  size.Search // for sizings; has no state, so one serves every choice

	program   []string          // of the generator
	params    map[string]string // of the generator
	began     time.Time
	seq       int
	fresh     bool // a trial ran that was not on record
	disturbed quiet.Row
	found     []finding // in the order of summary.Sizings
	summary   result.Summary
}

// New plans a campaign and starts nothing. It returns a *vitrine.BadInput if the files ask for the
// impossible, and a *vitrine.Unsupported if this host has too few CPUs for the campaign.
func New(cfg Config) (*Campaign, error) {
	c := &Campaign{Config: cfg, choices: cfg.Deployment.Servers.Choices()}
	if cfg.Deployment.Mode.Name != spec.Custom { // before the search, which would ask for a higher limit
		if err := c.fits(cfg.Deployment.Space().Smallest()); err != nil {
			return nil, err
		}
	}
	c.space = c.sizeSpace()
	var err error
	if c.search, err = c.sizeSearch(c.space); err != nil {
		return nil, c.located(err)
	}
	c.Plan, err = c.plan()
	return c, err
}

// errEnough ends a campaign whose time is over. It is not a failure.
var errEnough = errors.New("the time limit --max-time is over")

// Check opens the further back ends of the options, and closes them. It returns an error if they
// cannot be used or if this host cannot keep idle CPUs awake. So a campaign fails before its first
// measurement, not when the option's turn comes. Check needs the Testbed.
func (c *Campaign) Check(ctx context.Context) error {
	if c.keepsAwake() {
		if err := quiet.TryAwake(); err != nil {
			return err
		}
	}
	type place struct{ substrate, fabric, impairment string }
	checked := map[place]bool{}
	for i, o := range c.choices {
		p := place{o.Substrate, o.Fabric, o.Impairment}
		if i > 0 && !checked[p] { // the first one opens at once anyway
			bed, err := testbed.Open(ctx, c.Testbed, o)
			if err == nil {
				err = bed.Close(context.WithoutCancel(ctx))
			}
			if err != nil {
				return err
			}
		}
		checked[p] = true
	}
	return nil
}

// keepsAwake reports whether one of the options keeps idle CPUs awake.
func (c *Campaign) keepsAwake() bool {
	return slices.ContainsFunc(c.choices, func(o spec.Choice) bool { return o.KeepAwake })
}

// Run runs the campaign to its end, or until ctx ends. The summary holds all measurements, even if
// there is an error. Run saves it and the profile, unless the error is a result.ErrDiverged: the
// files then have measurements that this program cannot repeat.
func (c *Campaign) Run(ctx context.Context) (result.Summary, error) {
	c.began = time.Now()
	c.summary = result.Summary{VNF: c.Deployment.VNFName, Unit: c.Workload.Unit, Thresholds: c.Workload.Thresholds, ScaleOn: c.Deployment.Mode.ScaleOn, Interleaved: c.Deployment.Mode.Interleave}
	err := c.prepare()
	if err == nil {
		err = c.measure(ctx)
	}
	if err != nil {
		c.summary.StoppedBecause, c.summary.Partial = oneLine(err).Error(), true
	}
	if errors.Is(err, result.ErrDiverged) {
		return c.summary, err
	}
	if errors.Is(err, errEnough) {
		err = nil
	}
	if c.Plan.Lowered != "" {
		c.summary.StoppedBecause += "; " + c.Plan.Lowered
	}
	c.conclude()
	return c.summary, errors.Join(err, c.Results.SaveSummary(c.summary), c.saveProfile())
}

// prepare finds the generator and its parameters.
func (c *Campaign) prepare() (err error) {
	if c.program, err = c.generator(); err == nil {
		c.params, err = c.Workload.ParameterTexts()
	}
	c.Grace = cmp.Or(c.Grace, defaultGrace+answerTime(c.params))
	return err
}

// answerTime returns how long the last calls of a trial may still take, as far as the generator's
// parameters say. Each request of a call may take the timeout, and most calls have fewer than twelve.
// call_time covers the pauses of a SIPp scenario.
func answerTime(params map[string]string) (total time.Duration) {
	for name, times := range map[string]float64{"timeout": 12, "call_time": 1, "hold": 1, "stay": 1} {
		if d, err := time.ParseDuration(params[name]); err == nil && d > 0 {
			total += time.Duration(times * float64(d))
		}
	}
	return total
}

// generator returns the program that makes the load.
func (c *Campaign) generator() ([]string, error) {
	if c.Workload.Program != "" {
		return []string{c.Workload.Program}, nil
	}
	return c.Generator(c.Workload.Generator)
}

// measure measures every sizing under every choice of the options.
func (c *Campaign) measure(ctx context.Context) error {
	if c.Deployment.Mode.Interleave {
		return c.measureInTurns(ctx)
	}
	for _, choice := range c.choices {
		if err := c.measureChoice(ctx, choice); err != nil {
			return err
		}
	}
	return nil
}

// measureChoice measures every sizing that the mode asks for, under one choice of the options.
func (c *Campaign) measureChoice(ctx context.Context, choice spec.Choice) (err error) {
	at := &site{Campaign: c, choice: choice}
	defer func() { err = errors.Join(err, at.close(context.WithoutCancel(ctx))) }()
	var history []vitrine.Measured
	for {
		step := c.search.Next(history)
		c.emit(Event{Kind: SizingChosen, Choice: choice, Sizing: step.Sizing, Why: step.Why})
		if step.Done {
			c.stopped(choice, step.Why)
			return nil
		}
		c.addPath(choice, step)
		measured, err := c.measureSizing(ctx, at, step)
		if err != nil {
			return err
		}
		history = append(history, measured)
		c.emit(Event{Kind: SizingDone, Choice: choice, Sizing: step.Sizing, Measured: &measured})
		if !c.fresh { // summary.json of the resumed run has this sizing too, and may have more
			continue
		}
		soFar := c.summary
		soFar.StoppedBecause, soFar.Partial = "", true // the campaign goes on, also if the search under an earlier choice ended
		if err := c.Results.SaveSummary(soFar); err != nil {
			return err
		}
	}
}

// predicted returns the capacity that the search predicted for the sizing.
func (c *Campaign) predicted(step size.Step) *vitrine.Capacity {
	if step.Predicted == nil {
		return nil
	}
	return &vitrine.Capacity{Threshold: c.Workload.Thresholds[0], Rate: step.Predicted.Rate,
		Low: step.Predicted.Low, High: step.Predicted.High, Censored: vitrine.CensoredNone}
}

// stopped records why the search under one choice ended.
func (c *Campaign) stopped(choice spec.Choice, why string) {
	if len(c.choices) > 1 {
		why = strings.TrimSpace(choice.Substrate+" "+choice.Options) + ": " + why
	}
	if c.summary.StoppedBecause != "" {
		why = c.summary.StoppedBecause + "; " + why
	}
	c.summary.StoppedBecause = why
}

// measureSizing runs the rate search of one sizing. It does not repeat recorded trials. If the
// search does not end, the estimate from its trials is kept and marked as unfinished.
func (c *Campaign) measureSizing(ctx context.Context, at *site, chosen size.Step) (_ vitrine.Measured, err error) {
	s, err := c.newSubject(at, chosen)
	if err != nil {
		return vitrine.Measured{}, err
	}
	defer func() { err = errors.Join(err, at.end(context.WithoutCancel(ctx))) }()
	for err == nil && !s.next.Done {
		err = c.tryNext(ctx, s)
	}
	return s.end(c, err), err
}

// key names the next trial: another attempt at an invalid one, or the next in
// sequence.
func (c *Campaign) key(at *site, step rate.Step, history []vitrine.Outcome) vitrine.Key {
	attempt := 1
	if n := len(history); n > 0 {
		last := history[n-1]
		if !last.Valid && last.Repeat == step.Repeat && last.Rate == step.Rate {
			attempt = last.Attempt + 1
		}
	}
	if attempt == 1 {
		c.seq++
	}
	return vitrine.Key{
		Seq: c.seq, Attempt: attempt, Substrate: at.choice.Substrate, Options: at.choice.Options,
		Subject: at.sizing.String(), Repeat: step.Repeat, Rate: step.Rate,
	}
}

// findOrRun takes the trial from the record, or runs it and records it.
func (c *Campaign) findOrRun(ctx context.Context, at *site, key vitrine.Key, step rate.Step) (_ vitrine.Outcome, recorded bool, err error) {
	if outcome, ok := c.Results.Find(key); ok {
		return outcome, true, nil
	}
	if err := c.Results.CheckNew(key); err != nil {
		return vitrine.Outcome{}, false, err
	}
	if c.MaxTime > 0 && time.Since(c.began) > c.MaxTime {
		return vitrine.Outcome{}, false, errEnough
	}
	c.emit(Event{Kind: TrialBegins, Choice: at.choice, Sizing: at.sizing, Step: step, Key: key})
	lost, err := at.ready(ctx, step.Restart, max(c.Workload.Settle, step.Settle))
	if err != nil {
		return vitrine.Outcome{}, false, fmt.Errorf("sizing %s: %w", at.sizing, err)
	}
	outcome, err := at.runTrial(ctx, key, step.Duration)
	if err != nil {
		return outcome, false, err
	}
	if lost != "" {
		addNote(&outcome, fmt.Sprintf("from this trial on repeat %d has another deployment, because %s", key.Repeat, lost))
	}
	c.fresh = true
	return outcome, false, c.Results.Append(outcome)
}

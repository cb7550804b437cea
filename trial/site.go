package trial

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"vitrine"
	"vitrine/spec"
	"vitrine/substrate"
	"vitrine/testbed"
	"vitrine/testbed/deploy"
	"vitrine/testbed/quiet"
)

// A site is one choice of the options: the function, deployed at one sizing after the other, with
// the generator. It opens with the first trial that really runs. So a resumed campaign can read
// its recorded trials without starting anything.
type site struct {
	*Campaign
	choice    spec.Choice
	bed       *testbed.Site // nil: the site is not open
	generator *testbed.Instance
	awake     io.Closer // keeps idle CPUs polling; nil: idle CPUs may halt
	unlimited bool      // the function's instances boot without their quota; false if no trial has run

	sizing     vitrine.Sizing
	deployment *deploy.Deployment // nil: the sizing is not deployed
	stale      bool               // the next trial needs a fresh deployment
	boots      []time.Duration
}

// open makes the back ends and the generator's place.
func (s *site) open(ctx context.Context) (err error) {
	if s.bed, err = testbed.Open(ctx, s.Testbed, s.choice); err != nil {
		return err
	}
	s.unlimited = substrate.BootsUnlimited(s.bed.Substrate())
	placed, err := s.bed.Place(ctx, s.Results.LogDir(), testbed.Spec{OnHost: true, Spec: substrate.Spec{
		Name: vitrine.Generator, Component: vitrine.Generator, CPUs: s.CPUs.Generator,
		AllowPrivilegeEscalation: s.Workload.AllowPrivilegeEscalation,
	}})
	if err != nil {
		return err
	}
	s.generator = placed.Instances[0]
	if s.choice.KeepAwake {
		s.awake, err = quiet.KeepAwake()
	}
	return err
}

// ready prepares the sizing for the next trial. It deploys the sizing afresh if the search asks
// for that or the function needs it, and otherwise lets the function settle. If the search counts on a
// deployment that no longer runs, ready replaces it, and lost says why it does not run.
func (s *site) ready(ctx context.Context, restart bool, settle time.Duration) (lost string, err error) {
	if s.bed == nil {
		if err := s.open(ctx); err != nil {
			return "", err
		}
	}
	switch {
	case restart || s.stale:
	case s.deployment == nil:
		lost = "the run was resumed"
	default:
		if err := wait(ctx, settle); err != nil {
			return "", err
		}
		ended := s.deployment.Ended()
		if ended == nil {
			return "", nil
		}
		lost = oneLine(ended).Error()
	}
	return lost, s.redeploy(ctx)
}

// redeploy deploys the sizing afresh.
func (s *site) redeploy(ctx context.Context) error {
	placed := s.deployment == nil
	if placed {
		instances, err := s.place(s.sizing, s.choice)
		if err != nil {
			return err
		}
		dir := s.Results.LogDir(s.choice.Substrate, s.choice.Options, s.sizing.String())
		if s.deployment, err = deploy.Place(ctx, s.bed, dir, s.Testbed.Self, s.function(s.sizing), instances); err != nil {
			return err
		}
	} else if err := s.deployment.Clear(ctx); err != nil {
		return err
	}
	booted, err := s.deployment.Boot(ctx, s.generator)
	if err != nil {
		return errors.Join(err, s.end(context.WithoutCancel(ctx)))
	}
	s.stale = false
	if placed || !substrate.StaysUp(s.bed.Substrate()) { // otherwise a machine ran already, and only its process was started
		s.boots = append(s.boots, booted)
	}
	return nil
}

// begin sets the sizing that ready deploys.
func (s *site) begin(sizing vitrine.Sizing) { s.sizing, s.boots = sizing, nil }

// end removes the sizing's deployment.
func (s *site) end(ctx context.Context) error {
	if s.deployment == nil {
		return nil
	}
	err := s.deployment.Remove(ctx)
	s.deployment = nil
	return err
}

// close removes what open made. The site may open again.
func (s *site) close(ctx context.Context) error {
	if s.bed == nil {
		return nil
	}
	err := errors.Join(s.end(ctx), s.bed.Close(ctx))
	if s.awake != nil {
		err = errors.Join(err, s.awake.Close())
	}
	s.bed, s.generator, s.awake = nil, nil, nil
	return err
}

// decideFresh decides whether the next trial needs a fresh deployment. A stateful function needs
// one after an overload, and every function needs one after it lost an instance.
func (s *site) decideFresh(overloaded bool) {
	stateful := s.Deployment.Stateful && overloaded
	s.stale = stateful || (s.deployment != nil && s.deployment.Ended() != nil)
}

// boot returns the median time, in seconds, that the sizing's deployments took to boot. Of instances
// that stay up, only the first deployment counts. It is 0 if nothing was deployed, because all trials
// are on record.
func (s *site) boot() float64 {
	if len(s.boots) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s.boots))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]).Seconds() / 2
}

// vantages lists the vantages of the generator and the instances.
func (s *site) vantages() []vitrine.Vantage {
	return append([]vitrine.Vantage{s.generator.Vantage()}, s.deployment.Vantages()...)
}

// wait waits for d, or until the context ends.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

package trial

import (
	"context"
	"errors"
	"slices"
	"time"

	"vitrine"
	"vitrine/spec"
)

// A lazySite deploys only when a trial is really run, so that a resumed
// campaign walks through its record without starting anything.
type lazySite struct {
	config *Config
	choice spec.Choice
	site   *site

	sizing     vitrine.Sizing
	deployment *deployment
	stale      bool // the next trial needs a fresh deployment
	boots      []time.Duration
}

// ready brings the sizing up for the next trial: deployed, afresh where asked
// for or needed, else settled.
func (l *lazySite) ready(ctx context.Context, restart bool, settle time.Duration) (*deployment, error) {
	var err error
	if l.site == nil {
		if l.site, err = openSite(ctx, l.config, l.choice); err != nil {
			return nil, err
		}
	}
	if err := l.site.asleep(); err != nil {
		return nil, err
	}
	fresh := l.deployment == nil || restart || l.stale
	switch {
	case l.deployment == nil:
		l.deployment, err = deploy(ctx, l.config, l.site, l.sizing)
	case restart || l.stale:
		err = l.deployment.restart(ctx)
	default:
		err = wait(ctx, settle)
	}
	if err != nil {
		return nil, err
	}
	if fresh {
		l.boots = append(l.boots, l.deployment.booted)
	}
	l.stale = false
	return l.deployment, nil
}

// boot is the median time, in seconds, that the sizing's deployments took to
// boot; 0: all its trials are on record, and none was deployed.
func (l *lazySite) boot() float64 {
	if len(l.boots) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(l.boots))
	return sorted[len(sorted)/2].Seconds()
}

// after notes what a trial leaves behind: a stateful function that was
// overloaded, or one that lost an instance, is deployed afresh.
func (l *lazySite) after(overloaded bool) {
	stateful := l.config.Deployment.Stateful && overloaded
	l.stale = stateful || (l.deployment != nil && l.deployment.died() != nil)
}

// end takes the sizing's deployment down.
func (l *lazySite) end(ctx context.Context) error {
	if l.deployment == nil {
		return nil
	}
	err := l.deployment.remove(ctx)
	l.deployment = nil
	return err
}

func (l *lazySite) close(ctx context.Context) error {
	err := l.end(ctx)
	if l.site != nil {
		err = errors.Join(err, l.site.close(ctx))
		l.site = nil
	}
	return err
}

// wait lets the time pass, or ends early with the context.
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

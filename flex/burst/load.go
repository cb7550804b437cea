package burst

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"vitrine/flex"
	"vitrine/load"
)

// sliceSeconds is the length of a slice, in seconds. A generator has a constant rate.
const sliceSeconds = 5

// Users of the slices. A slice does not share users with the slices shortly before it, because
// their calls may still be open. At three requests of up to 10 s a call, they suffice for 1,600
// calls/s.
const (
	sliceUsers  = 50_000
	sliceGroups = 8
)

// offer offers the load in slices, and returns the generators' reports.
func (d *day) offer(ctx context.Context, start time.Time) ([]load.Report, error) {
	reports := make([]load.Report, len(d.result.Slices))
	group, gctx := errgroup.WithContext(ctx)
	for i := range reports {
		select {
		case <-gctx.Done():
		case <-time.After(time.Until(start.Add(time.Duration(i*sliceSeconds) * time.Second))):
			group.Go(func() (err error) {
				seconds := min(sliceSeconds, len(d.Load)-i*sliceSeconds)
				reports[i], err = d.generate(gctx, i, d.offered(i), float64(seconds))
				return err
			})
		}
	}
	return reports, group.Wait()
}

// offered returns the mean rate of a slice, in transactions/s.
func (d *day) offered(slice int) float64 {
	part := d.Load[slice*sliceSeconds : min((slice+1)*sliceSeconds, len(d.Load))]
	return part.Sum() / float64(len(part))
}

// settle offers the first rate of the day until the active instances carry it, so that the day
// does not begin with a burst from zero.
func (d *day) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, beginning)
	defer cancel()
	for {
		s, err := d.Status(ctx)
		if err != nil || s.Types[0].Capacity >= d.offered(0) {
			return err
		}
		// Use the last group of users, because the day needs it last.
		if _, err := d.generate(ctx, sliceGroups-1, d.offered(0), sliceSeconds); err != nil {
			return fmt.Errorf("before the day: %w", err)
		}
	}
}

// generate runs the generator of a slice.
func (d *day) generate(ctx context.Context, slice int, rate, seconds float64) (load.Report, error) {
	r, err := d.Generate(ctx, "sip", load.Trial{
		Rate: rate / PerCall, Duration: seconds, Seed: uint64(slice),
		Params: map[string]string{
			"arrivals": load.Poisson, "timeout": "10s",
			"first_user": strconv.Itoa(1 + slice%sliceGroups*sliceUsers), "users": strconv.Itoa(sliceUsers),
		},
	})
	if err != nil {
		return r, fmt.Errorf("second %d: %w", slice*sliceSeconds, err)
	}
	return r, nil
}

// judge compares the calls of each slice with the objective, and adds up the results.
func (d *day) judge(reports []load.Report) error {
	for i := range reports {
		r, s := &reports[i], &d.result.Slices[i]
		h, err := r.Histogram()
		if err != nil {
			return err
		}
		s.Success, s.P99 = 1, time.Duration(h.ValueAtQuantile(99)).Seconds()
		if r.Scheduled > 0 {
			s.Success = float64(r.Succeeded) / float64(r.Scheduled)
		}
		if s.Over = s.Success < Success || s.P99 > PerCall*Bound.Seconds(); s.Over {
			d.result.Over += min(sliceSeconds, len(d.Load)-s.Second)
		}
		d.result.Calls += r.Scheduled
		if late := r.Scheduled - r.Offered; late > 0 {
			d.result.Failed["not offered in time"] += late
		}
		for cause, n := range r.Failed {
			d.result.Failed[cause] += n
		}
	}
	return nil
}

// watch samples the status of the orchestrator in each second of the day.
func (d *day) watch(ctx context.Context, start time.Time) error {
	for second := range d.Load {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Until(start.Add(time.Duration(second+1) * time.Second))):
		}
		s, err := d.Status(ctx)
		if err != nil {
			return err
		}
		d.sample(second, time.Since(start), &s)
	}
	return nil
}

// sample adds the status at the end of a second to the result. at is the time since the start of
// the day.
func (d *day) sample(second int, at time.Duration, s *flex.Status) {
	r, slice, n := &d.result, second/sliceSeconds, len(s.Instances)
	r.InstanceSeconds += float64(n) * (at - d.before).Seconds()
	d.before = at
	r.Most = max(r.Most, n)
	for i := range s.Instances {
		r.Boot = max(r.Boot, s.Instances[i].Boot)
	}
	capacity, offered := s.Types[0].Capacity, d.offered(slice)
	d.short++
	if capacity >= offered {
		d.short = 0
	}
	r.Lag = max(r.Lag, d.short)
	r.Slices[slice] = Slice{Second: slice * sliceSeconds, Offered: offered, Capacity: capacity, Instances: n}
}

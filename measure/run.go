package measure

import (
	"context"
	"errors"
	"fmt"
	"os"

	"vitrine"
	"vitrine/measure/packet"
)

// attempts at a stream, before what it gave stays invalid.
const attempts = 3

// Run measures what the plan says and keeps every stream in the run folder; those
// that are there already are not measured again. What this host cannot do is kept
// in the manifest with its reason, and the run goes on. The error is of a host
// that could do none of it, of input that is bad for all of it, or of combinations
// that failed.
func Run(ctx context.Context, c Config) error {
	r := &runner{Config: c, label: c.Label(), left: map[Combination]error{}}
	if err := r.note(); err != nil { // what was left out before may be possible now
		return err
	}
	for _, v := range c.Plan.visits {
		if err := r.visit(ctx, v); err != nil {
			return err
		}
	}
	return r.verdict()
}

// A runner goes through a plan.
type runner struct {
	Config
	label uint32 // of the run's probes
	done  int    // streams
	// left are combinations that were left out: what the host cannot do, and what
	// failed.
	left map[Combination]error
}

// visit deploys one combination and measures what is not on record of it.
func (r *runner) visit(ctx context.Context, v visit) error {
	v = r.unrecorded(v)
	if len(v.echoed)+len(v.oneWay) == 0 {
		return nil
	}
	if _, left := r.left[v.where]; left {
		r.done += len(v.echoed) + len(v.oneWay)
		return nil
	}
	r.Tell(Event{Doing: fmt.Sprintf("%s, repeat %d", v.where, v.repeat), Done: r.done, Of: r.Plan.Streams})
	err := r.measure(ctx, v)
	if ctx.Err() != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	if err == nil {
		return nil
	}
	r.left[v.where] = err
	r.done += len(v.echoed) + len(v.oneWay)
	r.Tell(Event{Doing: fmt.Sprintf("%s was left out: %v", v.where, err), Done: r.done, Of: r.Plan.Streams})
	return r.note()
}

// note keeps in the manifest what was left out, and why.
func (r *runner) note() error {
	m := r.Results.Manifest()
	m.Unsupported = nil
	for where, err := range r.left {
		if m.Unsupported == nil {
			m.Unsupported = map[string]string{}
		}
		m.Unsupported[where.String()] = err.Error()
	}
	return r.Results.SaveManifest(m)
}

// unrecorded takes out of the visit what is finished.
func (r *runner) unrecorded(v visit) visit {
	open := func(list []stream) (rest []stream) {
		for _, x := range list {
			_, o, done := r.Results.Attempts(x.key(1), attempts)
			if !done {
				rest = append(rest, x)
				continue
			}
			r.done++
			r.Tell(Event{Outcome: &o, Recorded: true, Done: r.done, Of: r.Plan.Streams})
		}
		return rest
	}
	v.echoed, v.oneWay = open(v.echoed), open(v.oneWay)
	return v
}

// next is the number of the next attempt.
func (r *runner) next(x stream) int {
	made, _, _ := r.Results.Attempts(x.key(1), attempts)
	return made + 1
}

// measure puts sender and receiver in place and measures the visit's streams.
func (r *runner) measure(ctx context.Context, v visit) (err error) {
	dir := r.Results.LogDir(v.where.Substrate+"-"+v.where.Fabric, fmt.Sprint(v.repeat))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	s, err := openSite(ctx, &r.Config, v, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close(context.WithoutCancel(ctx))) }()
	echoed, err := r.fitting(s, v.echoed)
	if err == nil {
		err = r.echoed(ctx, s, echoed)
	}
	if err != nil {
		return err
	}
	oneWay, err := r.fitting(s, v.oneWay)
	for err == nil && len(oneWay) > 0 {
		oneWay, err = r.oneWay(ctx, s, oneWay)
	}
	return err
}

// fitting takes out streams whose frames the path does not take, and says so in
// their outcomes.
func (r *runner) fitting(s *site, list []stream) (fit []stream, err error) {
	for _, x := range list {
		if x.size <= s.largest() {
			fit = append(fit, x)
			continue
		}
		o := outcome(x, r.next(x), Detail{Metric: x.metric, Way: x.way, Size: x.size, Fabric: x.where.Fabric, Ports: s.facts()})
		o.Offered = 0
		o.Valid, o.Reason = false, fmt.Sprintf("%s: %d bytes, and the path's MTU lets frames of at most %d pass", overMTU, x.size, s.largest())
		for ; o.Attempt <= attempts; o.Attempt++ { // it will not fit another time
			if err := r.Results.Append(o); err != nil {
				return nil, err
			}
		}
		r.finish(o)
	}
	return fit, nil
}

// overMTU begins the reason of a stream whose frames are too large.
const overMTU = "over the MTU"

func (r *runner) finish(o vitrine.Outcome) {
	r.done++
	r.Tell(Event{Outcome: &o, Done: r.done, Of: r.Plan.Streams})
}

// echoed measures round trips, one stream after the other.
func (r *runner) echoed(ctx context.Context, s *site, list []stream) error {
	if len(list) == 0 {
		return nil
	}
	if err := s.start(ctx, "echo", "--listen", s.to().String()); err != nil {
		return err
	}
	for _, x := range list {
		for {
			out, err := s.measured(ctx, r.label, x)
			if err != nil {
				return fmt.Errorf("%s of %d bytes, round trip: %w", x.metric, x.size, err)
			}
			o := outcome(x, r.next(x), backDetail(s, x, out))
			if err := r.Results.Append(o); err != nil {
				return err
			}
			if o.Valid || o.Attempt >= attempts {
				r.finish(o)
				break
			}
		}
	}
	_, err := s.stop(ctx)
	return err
}

// oneWay measures streams that one receiver takes, and gives those that are to
// be measured again.
func (r *runner) oneWay(ctx context.Context, s *site, list []stream) (again []stream, err error) {
	args := []string{"receive", "--listen", s.to().String(), "--run", fmt.Sprint(r.label), "--most", fmt.Sprint(most(list))}
	if !foreignKernel(s.where.Substrate) { // a guest's CPUs are its own
		args = append(args, "--cpu", fmt.Sprint(s.config.CPUs.Function[0]))
	}
	if err := s.start(ctx, args...); err != nil {
		return nil, err
	}
	details := make([]Detail, len(list))
	sent := make([]sending, len(list))
	for i, x := range list {
		if sent[i], err = s.measured(ctx, r.label, x); err != nil {
			return nil, fmt.Errorf("%s of %d bytes: %w", x.metric, x.size, err)
		}
	}
	text, err := s.stop(ctx)
	if err != nil {
		return nil, err
	}
	got, err := readReceived(text)
	if err != nil {
		return nil, fmt.Errorf("%s says: %w", s.receiver.name, err)
	}
	for i, x := range list {
		details[i] = wayDetail(s, x, sent[i], got)
		o := outcome(x, r.next(x), details[i])
		if err := r.Results.Append(o); err != nil {
			return nil, err
		}
		if !o.Valid && o.Attempt < attempts {
			again = append(again, x)
			continue
		}
		r.finish(o)
	}
	return again, nil
}

// most is how many probes of the streams a receiver is to take.
func most(list []stream) (probes int) {
	for _, x := range list {
		probes += 4 * x.packets // twice, for duplicates; efficiency sends two streams
	}
	return min(probes, packet.MostReceived)
}

// verdict is the error that the whole run ends with.
func (r *runner) verdict() error {
	if err := r.unfit(); err != nil {
		return err
	}
	var unsupported, failed []error
	measured := false
	for _, where := range r.Plan.Combinations {
		err := r.left[where]
		switch {
		case err == nil:
			measured = measured || where.Fabric != Floor
		case vitrine.IsUnsupported(err):
			unsupported = append(unsupported, fmt.Errorf("%s: %w", where, err))
		default:
			failed = append(failed, fmt.Errorf("%s: %w", where, err))
		}
	}
	if !measured {
		failed = append(failed, unsupported...)
	}
	return errors.Join(failed...)
}

// unfit says that frames of a size fit nowhere but on the loopback interface.
func (r *runner) unfit() error {
	why := map[int]string{}
	taken := map[int]bool{}
	for _, o := range r.Results.Outcomes() {
		d, err := ReadDetail(o)
		switch {
		case err != nil || d.Fabric == Floor:
		case !o.Valid && len(o.Reason) >= len(overMTU) && o.Reason[:len(overMTU)] == overMTU:
			why[d.Size] = o.Reason
		default:
			taken[d.Size] = true
		}
	}
	for _, size := range r.Plan.Settings.Sizes {
		if why[size] != "" && !taken[size] {
			return &vitrine.BadInput{File: "--frames", Found: why[size], Want: "choose smaller frames, or a fabric with a larger MTU"}
		}
	}
	return nil
}

package measure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"vitrine"
	"vitrine/measure/packet"
)

// Run measures the plan's streams and stores each in the run folder. It skips streams that the
// folder has. If this host does not support a combination, Run writes the reason to the manifest
// and continues. It returns an error if the host supports no combination, if a frame size fits no
// fabric, if a combination failed, or if the host is too noisy.
func Run(ctx context.Context, c Config) error {
	r, err := RunVisits(ctx, &c.Stage, c.Plan.visits, func(ctx context.Context, r *Runner, open []stream) error {
		return measureVisit(ctx, &c, r, open)
	})
	if err != nil {
		return err
	}
	if err := checkSizes(c.Results.Outcomes(), c.Plan.Settings.Sizes); err != nil {
		return err
	}
	return r.Verdict()
}

// A visit measures the streams of one deployment.
type visit struct {
	*Runner
	*site
	label uint32 // of the run's probes
}

// measureVisit places sender and receiver and measures the streams.
func measureVisit(ctx context.Context, c *Config, r *Runner, open []stream) (err error) {
	where := open[0].where
	s, err := openSite(ctx, c, where, c.Results.LogDir(where.Substrate+"-"+where.Fabric, fmt.Sprint(open[0].repeat)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close(context.WithoutCancel(ctx))) }()
	v := visit{Runner: r, site: s, label: c.Label()}
	if open, err = v.dropOversized(open); err != nil {
		return err
	}
	echoed, oneWay := splitByWay(open)
	batches := append(slices.Collect(slices.Chunk(echoed, 1)), oneWay) // an echo per stream, so its drops are the stream's
	for _, list := range batches {
		for err == nil && len(list) > 0 {
			list, err = v.measureBatch(ctx, list)
		}
	}
	return err
}

// measureWatched measures one stream while the host is watched.
func (v *visit) measureWatched(ctx context.Context, x stream) (out sentStream, seen Disturbance, err error) {
	seen, err = v.Watched(ctx, func() (err error) {
		out, err = v.measureStream(ctx, v.label, x)
		return err
	})
	return out, seen, err
}

// splitByWay separates the streams that an echo returns from the one-way streams.
func splitByWay(list []stream) (echoed, oneWay []stream) {
	for _, x := range list {
		if x.way == RoundTrip {
			echoed = append(echoed, x)
		} else {
			oneWay = append(oneWay, x)
		}
	}
	return echoed, oneWay
}

// dropOversized returns the streams whose frames fit the path's MTU. It records invalid
// outcomes for the others.
func (v *visit) dropOversized(list []stream) (fit []stream, err error) {
	for _, x := range list {
		if x.size <= v.largest() {
			fit = append(fit, x)
			continue
		}
		for finished := false; !finished; { // use up the attempts, because the frame never fits
			o := outcome(x, v.Next(x), Detail{Metric: x.metric, Way: x.way, Size: x.size, Fabric: x.where.Fabric, Ports: v.portFacts()})
			o.Offered, o.Valid = 0, false
			o.Reason = fmt.Sprintf("%s: %d bytes, and the path's MTU allows frames of at most %d", overMTU, x.size, v.largest())
			if finished, err = v.Keep(o); err != nil {
				return nil, err
			}
		}
	}
	return fit, nil
}

// overMTU begins the reason for a stream whose frames are too large.
const overMTU = "over the MTU"

// measureBatch measures streams of one way, one after the other, with one program at the receiver. It
// returns the streams to repeat. It returns an error if the echo or the fabric has ended.
func (v *visit) measureBatch(ctx context.Context, list []stream) (again []stream, err error) {
	if err := v.startReceiver(ctx, list); err != nil {
		return nil, err
	}
	var sent []sentStream
	var seen []Disturbance
	var ended error
	for _, x := range list {
		out, host, err := v.measureWatched(ctx, x)
		if err != nil {
			return nil, fmt.Errorf("%s of %d bytes, %s: %w", x.metric, x.size, x.way, err)
		}
		sent, seen = append(sent, out), append(seen, host)
		if ended = v.ended(x); ended != nil { // the other streams would be lost
			break
		}
	}
	got, err := v.stopReceiver(ctx)
	if ended == nil {
		ended = v.FabricEnded() // packets of the last stream may have been in flight
	}
	switch {
	case err == nil:
	case ended != nil: // an echo that has ended prints no record
		got = &received{Record: &packet.Record{}}
	default:
		return nil, err
	}
	detail := oneWayDetail
	if list[0].way == RoundTrip {
		detail = roundTripDetail
	}
	outcomes := make([]vitrine.Outcome, len(sent))
	for i, x := range list[:len(sent)] {
		outcomes[i] = outcome(x, v.Next(x), detail(v.site, x, sent[i], got))
		MarkEnded(&outcomes[i], ended) // nobody knows during which stream
		seen[i].Mark(&outcomes[i])
	}
	again, err = v.keepAll(list, outcomes)
	return again, errors.Join(err, ended)
}

// startReceiver starts the program that the streams need at the receiver.
func (v *visit) startReceiver(ctx context.Context, list []stream) error {
	return v.start(ctx, v.receiverArgs(list)...)
}

// receiverArgs returns the program that the streams need at the receiver, and its arguments.
func (v *visit) receiverArgs(list []stream) []string {
	args := []string{"echo", "--listen", v.receiverAddr().String()}
	if list[0].way == OneWay {
		args = []string{
			"receive", "--listen", v.receiverAddr().String(), "--run", fmt.Sprint(v.label), "--most", fmt.Sprint(mostProbes(list)),
			"--teach", v.senderAddr().String(),
		}
	}
	if !v.guest { // a guest has CPUs of its own
		args = append(args, "--cpu", fmt.Sprint(v.CPUs.Function[0]))
	}
	return args
}

// ended returns an error if the fabric has ended, or the echo of a round trip. A receiver may end, as
// it does after the last probe that it takes.
func (v *visit) ended(x stream) error {
	if x.way == RoundTrip {
		return errors.Join(v.receiver.Ended(), v.FabricEnded())
	}
	return v.FabricEnded()
}

// stopReceiver stops the program at the receiver and returns its record.
func (v *visit) stopReceiver(ctx context.Context) (*received, error) {
	text, err := v.stop(ctx)
	if err != nil {
		return nil, err
	}
	got, err := readReceived(text)
	if err != nil {
		return nil, fmt.Errorf("the record of %s: %w", v.receiver.Name, err)
	}
	return got, nil
}

// mostProbes returns the maximum number of probes that the receiver must take.
func mostProbes(list []stream) (probes int) {
	for _, x := range list {
		probes += 4 * x.packets // twice for duplicates, and efficiency sends two streams
	}
	return min(probes, packet.MostReceived)
}

// checkSizes returns an error if frames of a size fit only the loopback interface.
func checkSizes(outcomes []vitrine.Outcome, sizes []int) error {
	why := map[int]string{}
	taken := map[int]bool{}
	for _, o := range outcomes {
		d, err := ReadDetail(o)
		switch {
		case err != nil || d.Fabric == Floor:
		case !o.Valid && strings.HasPrefix(o.Reason, overMTU):
			why[d.Size] = o.Reason
		default:
			taken[d.Size] = true
		}
	}
	for _, size := range sizes {
		if why[size] != "" && !taken[size] {
			return &vitrine.BadInput{File: "--frames", Found: why[size], Want: "choose smaller frames, or a fabric with a larger MTU"}
		}
	}
	return nil
}

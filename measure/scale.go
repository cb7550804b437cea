package measure

import (
	"context"
	"errors"
	"fmt"
	"math"

	"vitrine/measure/packet"
)

const (
	probed   = 10_000 // packets sent to try a rate
	headroom = 2      // the sender's CPU also does the work of the fabric (a bridge, a switch in user space), which may double its load
	step     = 0.8    // factor from a rate that was not held to the next rate
	tries    = 3      // per rate, because disturbances are short
	lowest   = 1000   // packets a second; no rate is scaled below it
)

// Scale lowers rates to those that sender and receiver hold on this host's loopback interface,
// with headroom. It does not lower rates that the user set. Settings.Scaled lists the changes. dir
// is for the instances' output.
func Scale(ctx context.Context, c Config, s Settings, dir string) (_ Settings, err error) {
	if err := s.Check(); err != nil {
		return s, err
	}
	rates := s.scalable()
	if len(rates) == 0 {
		return s, nil
	}
	c.Plan.Settings = s
	site, err := openSite(ctx, &c, floor(), dir)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, site.Close(context.WithoutCancel(ctx))) }()
	held := 0.0 // the highest rate held so far
	for i := range rates {
		r := &rates[i]
		asked := *r.rate
		for *r.rate > held && *r.rate > lowest {
			sent, ok, err := site.holds(ctx, *r.rate*headroom, s.SmallSize)
			if err != nil {
				return s, fmt.Errorf("find the rate that this host holds: %w", err)
			}
			if ok {
				held = *r.rate
				break
			}
			*r.rate = max(round(step*min(*r.rate, sent/headroom)), lowest)
		}
		if *r.rate < asked {
			s.Scaled = append(s.Scaled, fmt.Sprintf("%s: %.0f packets a second instead of %.0f (%s): sender and receiver on this host do not hold more with headroom",
				r.metric, *r.rate, asked, r.source))
		}
	}
	return s, nil
}

// A scalable is a rate that may be lowered.
type scalable struct {
	metric, source string
	rate           *float64
}

// scalable returns the rates that are used and not set by the user, in ascending order of the defaults.
func (s *Settings) scalable() []scalable {
	var list []scalable
	for _, x := range []struct {
		scalable
		given bool
	}{
		{scalable{Latency, "the default", &s.Rates.Latency}, s.Given.Latency},
		{scalable{Efficiency, "the paper's", &s.Rates.Efficiency}, s.Given.Efficiency},
		{scalable{Jitter, "the paper's 130 Mb/s", &s.Rates.Jitter}, s.Given.Jitter},
	} {
		if !x.given && s.measures(x.metric) {
			list = append(list, x.scalable)
		}
	}
	return list
}

// holds reports whether a stream at the rate is sent on schedule and arrives
// completely. best is the highest rate that was sent, at most rate.
func (s *site) holds(ctx context.Context, rate float64, size int) (best float64, ok bool, err error) {
	for range tries {
		sent, count, err := s.try(ctx, stream{way: OneWay, id: 1, size: size, packets: probed, rate: rate})
		if err != nil {
			return 0, false, err
		}
		if sent.Held() == nil && count == probed {
			return rate, true, nil
		}
		best = max(best, min(sent.Rate, rate))
	}
	return best, false, nil
}

// try sends a stream and returns how many of its packets arrive.
func (s *site) try(ctx context.Context, x stream) (packet.Sent, int, error) {
	err := s.start(ctx, "receive", "--listen", s.receiverAddr().String(), "--run", "1", "--most", fmt.Sprint(2*probed), "--cpu", fmt.Sprint(s.config.CPUs.Function[0]))
	if err != nil {
		return packet.Sent{}, 0, err
	}
	sent, err := s.send(ctx, 1, x)
	if err != nil {
		return packet.Sent{}, 0, err
	}
	text, err := s.stop(ctx)
	if err != nil {
		return packet.Sent{}, 0, err
	}
	got, err := packet.ReadRecord(text)
	if err != nil {
		return packet.Sent{}, 0, err
	}
	return *sent.Sent, got.Count, nil
}

// round rounds v down to two significant digits.
func round(v float64) float64 {
	if v <= 0 {
		return 0 // no logarithm
	}
	unit := math.Pow(10, math.Floor(math.Log10(v))-1)
	return math.Floor(v/unit) * unit
}

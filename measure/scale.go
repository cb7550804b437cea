package measure

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"

	"vitrine/measure/packet"
)

const (
	probed   = 10_000 // packets of a stream that tries a rate
	headroom = 1.25   // a path of a fabric takes more than the instrument's own
	step     = 0.8    // from a rate that was not held to the next that is tried
	tries    = 3      // at a rate: what disturbs passes
	lowest   = 1000   // packets a second, below which nothing is scaled
)

// Scale lowers the rates that the user did not give to what sender and receiver
// hold here, on the loopback interface and with room to spare, and says so in
// Settings.Scaled. dir is for what the instances say.
func Scale(ctx context.Context, c Config, s Settings, dir string) (_ Settings, err error) {
	if err := s.Check(); err != nil {
		return s, err
	}
	rates := s.scalable()
	if len(rates) == 0 {
		return s, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return s, err
	}
	c.Plan.Settings = s
	site, err := openSite(ctx, &c, visit{where: floor()}, dir)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, site.close(context.WithoutCancel(ctx))) }()
	held := 0.0 // a rate that was held, or 0
	for i := range rates {
		r := &rates[i]
		asked := *r.rate
		for *r.rate > held && *r.rate > lowest {
			ok, err := site.holds(ctx, *r.rate*headroom, s.SmallSize)
			if err != nil {
				return s, fmt.Errorf("find out what rate this host holds: %w", err)
			}
			if ok {
				held = *r.rate
				break
			}
			*r.rate = round(*r.rate * step)
		}
		if *r.rate < asked {
			s.Scaled = append(s.Scaled, fmt.Sprintf("%s: %.0f packets a second instead of %.0f (%s): sender and receiver do not hold more here with room to spare",
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

// scalable are the rates that are used and were not given, the lowest first.
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

// holds says whether a stream of the rate is sent at its times and arrives whole.
func (s *site) holds(ctx context.Context, rate float64, size int) (bool, error) {
	for range tries {
		err := s.start(ctx, "receive", "--listen", s.to().String(), "--run", "1", "--most", fmt.Sprint(2*probed), "--cpu", fmt.Sprint(s.config.CPUs.Function[0]))
		if err != nil {
			return false, err
		}
		sent, err := s.send(ctx, 1, stream{way: OneWay, id: 1, size: size, packets: probed, rate: rate})
		if err != nil {
			return false, err
		}
		text, err := s.stop(ctx)
		if err != nil {
			return false, err
		}
		got, err := packet.ReadRecord(text)
		if err != nil {
			return false, err
		}
		if sent.Sent.Held() == nil && got.Count == probed {
			return true, nil
		}
	}
	return false, nil
}

// round keeps two digits.
func round(v float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(v))-1)
	return math.Floor(v/unit) * unit
}

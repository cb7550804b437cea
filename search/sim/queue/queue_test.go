package queue

import (
	"math"
	"reflect"
	"testing"
	"time"

	"vitrine"
	"vitrine/search/sim"
)

func trial(rate float64, seconds int) sim.Trial {
	return sim.Trial{Sizing: Sizing(), Rate: rate, Duration: time.Duration(seconds) * time.Second, Repeat: 1, Attempt: 1}
}

// servers runs a test on some servers of every family.
func servers(t *testing.T, test func(t *testing.T, s *Server)) {
	for _, family := range Families() {
		for i := range 4 {
			s := Tuning.Server(family, i)
			t.Run(s.Name, func(t *testing.T) { test(t, s) })
		}
	}
}

// TestCallsAddUp checks that every call of the window is counted once, in its
// second and in flight.
func TestCallsAddUp(t *testing.T) {
	servers(t, func(t *testing.T, s *Server) {
		for _, share := range []float64{0.3, 1, 1.5} {
			o := s.Deploy(Sizing(), 1, 0).Run(trial(share*s.Rate, 10))
			if o.Offered != o.Scheduled || o.Scheduled != o.Succeeded+o.FailedTotal() {
				t.Errorf("%d scheduled, %d offered, %d succeeded, %v failed", o.Scheduled, o.Offered, o.Succeeded, o.Failed)
			}
			if want := 10 * share * s.Rate; math.Abs(float64(o.Scheduled)-want) > 5*math.Sqrt(want) {
				t.Errorf("%d calls in 10 s at %g a second", o.Scheduled, share*s.Rate)
			}
			var sum vitrine.Second
			for _, second := range o.Seconds {
				sum.Scheduled += second.Scheduled
				sum.Succeeded += second.Succeeded
				sum.Failed += second.Failed
			}
			if len(o.Seconds) != 10 || sum.Scheduled != o.Scheduled || sum.Succeeded != o.Succeeded || sum.Failed != o.FailedTotal() {
				t.Errorf("%d seconds with %+v in all, of %d calls", len(o.Seconds), sum, o.Scheduled)
			}
			if len(o.InFlight) != 100 {
				t.Errorf("calls in flight at %d times, want 100", len(o.InFlight))
			}
			for k, n := range o.InFlight {
				if n < 0 || float64(n) > 2*s.Timeout*share*s.Rate+20 {
					t.Errorf("%d calls in flight at %d, with a timeout of %g s", n, k, s.Timeout)
				}
			}
			if use := o.Use["function-1"]; *use.CPU <= 0.1*use.VCPUs || *use.CPU > use.VCPUs {
				t.Errorf("uses %g of %g CPUs at %g of its rate", *use.CPU, use.VCPUs, share)
			}
		}
	})
}

// TestSameTrialsSameOutcomes checks that the same trials in the same order give
// the same outcomes, and other seeds and repeats give others.
func TestSameTrialsSameOutcomes(t *testing.T) {
	servers(t, func(t *testing.T, s *Server) {
		run := func(s *Server, repeat int) (outcomes []vitrine.Outcome) {
			d := s.Deploy(Sizing(), repeat, time.Minute)
			for _, share := range []float64{0.5, 1.2, 0.9} {
				d.Rest(time.Second)
				outcomes = append(outcomes, d.Run(trial(share*s.Rate, 5)))
			}
			return outcomes
		}
		first := run(s, 1)
		if !reflect.DeepEqual(first, run(s, 1)) {
			t.Error("the same deployment differs")
		}
		if reflect.DeepEqual(first, run(s, 2)) || reflect.DeepEqual(first, run(s.Seeded(1), 1)) {
			t.Error("other deployments do not differ")
		}
	})
}

// ratio returns the success ratio of a trial on the deployment.
func ratio(d *deployment, rate float64, seconds int) float64 {
	o := d.Run(trial(rate, seconds))
	return o.SuccessRatio()
}

// TestLateCallsAreServed checks that a worker that serves late calls fails all
// calls after an overload, until its backlog is gone.
func TestLateCallsAreServed(t *testing.T) {
	s := Tuning.Server(Queue, 0)
	s.Warmup = 0
	backlog := int(math.Ceil(s.Bound))
	d := s.deployAt(1, 1)
	ratio(d, 2*s.Rate, 10)
	if got := ratio(d, 0.5*s.Rate, 1); got > 0.2 {
		t.Errorf("%g of the calls succeed in the second after an overload", got)
	}
	ratio(d, 2*s.Rate, 10)
	d.Rest(time.Duration(backlog) * time.Second)
	if got := ratio(d, 0.5*s.Rate, 1); got < 0.99 {
		t.Errorf("%g of the calls succeed after %d s of rest", got, backlog)
	}
}

// TestRefusalKeepsGoodput checks that early refusal keeps the goodput, less the
// cost of refusing.
func TestRefusalKeepsGoodput(t *testing.T) {
	s := Tuning.Server(Refusal, 0)
	o := s.deployAt(1, 1).Run(trial(2*s.Rate, 30))
	want := (1/2.0 - s.Refusal) / (1 - s.Refusal)
	if got := o.SuccessRatio(); math.Abs(got-want) > 0.03 || o.Failed["503"] != o.FailedTotal() {
		t.Errorf("%g of the calls succeed at twice the rate, want %g; %v failed", got, want, o.Failed)
	}
}

// TestQuotaHolds checks that a quota is never exceeded, and that it determines
// the rate.
func TestQuotaHolds(t *testing.T) {
	for i := range Size {
		s := Tuning.Server(Quota, i)
		d := s.deployAt(1, 1)
		o := d.Run(trial(1.3*s.Rate, 20))
		got := float64(o.Succeeded) / 20
		if !s.Silent && math.Abs(got/s.Rate-1) > 0.15 {
			t.Errorf("%s: %g calls a second succeed, want about %g", s.Name, got, s.Rate)
		}
		// A full period's quota runs at full speed; the worker pauses for the
		// rest of the period.
		d = s.deployAt(1, 2)
		done := d.throttled(0, s.Share*s.Period*2.5)
		if want := s.Period*2 + s.Share*s.Period/2; math.Abs(done-want) > 1e-9 {
			t.Errorf("%s: two and a half quotas are done at %g, want %g", s.Name, done, want)
		}
	}
}

// TestCollectionsTakeTheirShare checks that pauses take their share of the time.
func TestCollectionsTakeTheirShare(t *testing.T) {
	s := Tuning.Server(GC, 0)
	d := s.deployAt(1, 1)
	at, work := 0.0, 0.0
	for range 200_000 {
		const step = 0.01
		at = d.finish(at, step)
		work += step
	}
	if got := at/work - 1; math.Abs(got/s.Pause-1) > 0.05 {
		t.Errorf("pauses take %g of the work, want %g", got, s.Pause)
	}
}

// TestCachesWarm checks that a fresh deployment is slower than one with a warm
// cache.
func TestCachesWarm(t *testing.T) {
	for i := range Size {
		s := Tuning.Server(Warm, i)
		d := s.Deploy(Sizing(), 1, 0)
		rate := 1.2 * s.Rate
		first := d.Run(trial(rate, 1))
		d.Run(trial(rate, 100))
		last := d.Run(trial(rate, 30))
		if first, last := *first.Use["function-1"].CPU, *last.Use["function-1"].CPU; first <= 0.9*last && s.Cold > 0.3 {
			t.Errorf("%s: uses %g CPUs when fresh, %g when warm", s.Name, first, last)
		}
		if first, last := first.SuccessRatio(), last.SuccessRatio(); s.Cold > 0.3 && s.Warming > 5*s.Rate && first > last-0.02 {
			t.Errorf("%s: %g of the calls succeed when fresh, %g when warm", s.Name, first, last)
		}
	}
}

// TestStepsFailTogether checks that one refused request of three fails the call.
func TestStepsFailTogether(t *testing.T) {
	s := Tuning.Server(Steps, 0)
	rate := 1.5 * s.Rate
	o := s.deployAt(1, 1).Run(trial(rate, 60))
	// Each step refuses the same share of requests and leaves q of them. A call
	// of three offers 1+q+q^2 requests, and a worker without a cost of refusing
	// serves q(1+q+q^2) of them per call.
	low, high := 0.0, 1.0
	for range 50 {
		q := (low + high) / 2
		served := q * (1 + q + q*q)
		turned := (1 - q) * (1 + q + q*q)
		if rate*(served+turned*s.Refusal) > 3*s.Rate {
			high = q
		} else {
			low = q
		}
	}
	if got, want := o.SuccessRatio(), low*low*low; math.Abs(got-want) > 0.05 {
		t.Errorf("%g of the calls succeed, want %g", got, want)
	}
}

// TestStatesAndLuck checks that deployments are in the lower state as often as
// they should be, and slower there.
func TestStatesAndLuck(t *testing.T) {
	s := Tuning.Server(TwoState, 0)
	lower := 0
	const n = 2000
	for repeat := range n {
		if d := s.Deploy(Sizing(), repeat, 0).(*deployment); d.first > 1/(s.Rate*(1-s.Gap/2)) {
			lower++
		}
	}
	if got := float64(lower) / n; math.Abs(got-s.Lower) > 0.05 {
		t.Errorf("%g of the deployments are in the lower state, want %g", got, s.Lower)
	}
	s = Tuning.Server(Luck, 0)
	var squares float64
	for repeat := range n {
		x := math.Log(s.Deploy(Sizing(), repeat, 0).(*deployment).first * s.Rate)
		squares += x * x
	}
	if got := math.Sqrt(squares / n); math.Abs(got/s.Luck-1) > 0.1 {
		t.Errorf("deployments differ by %g, want %g", got, s.Luck)
	}
}

// TestDrift checks that a drifting server is judged by its mean over the time of
// the search.
func TestDrift(t *testing.T) {
	s := Tuning.Server(Drift, 0)
	base := s.CapacityOver(0.9, 0)
	if got, want := s.CapacityOver(0.9, time.Hour)/base, 1+s.Drift/2; math.Abs(got-want) > 1e-9 {
		t.Errorf("over an hour the mean capacity is %g of the first, want %g", got, want)
	}
	if got, want := s.CapacityOver(0.9, 4*time.Hour)/base, (2*(1+s.Drift)+2*(1+2*s.Drift))/4; math.Abs(got-want) > 1e-9 {
		t.Errorf("over four hours the mean capacity is %g of the first, want %g", got, want)
	}
}

// TestStallsComeWithLoad checks that stalls come more often the more the server
// works.
func TestStallsComeWithLoad(t *testing.T) {
	s := Tuning.Server(Episodes, 0)
	count := func(gap float64) (stalls float64) {
		d := s.deployAt(1, 1)
		at := 0.0
		const step, work = 0.01, 100_000.0
		for done := 0.0; done < work; done += step {
			if end := d.finish(at, step); end > at+1 {
				stalls++
				at = end
			}
			at += step + gap
		}
		return stalls / work * s.StallAfter
	}
	if got := count(0); math.Abs(got-1) > 0.1 {
		t.Errorf("%g as many stalls at full load as there should be", got)
	}
	if got := count(0.01); math.Abs(got-0.125) > 0.025 {
		t.Errorf("%g as many stalls for as much work at half the load, want an eighth", got)
	}
}

func BenchmarkCalls(b *testing.B) {
	for _, family := range Families() {
		b.Run(family, func(b *testing.B) {
			s := Tuning.Server(family, 0)
			d := s.deployAt(1, 1)
			for n := 0; n < b.N; {
				o := d.Run(trial(s.Rate, 60))
				n += int(o.Scheduled)
			}
		})
	}
}

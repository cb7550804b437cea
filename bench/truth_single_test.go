package main

import (
	"math"
	"regexp"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"vitrine/search/rate"
	"vitrine/search/sim"
	"vitrine/search/sim/queue"
)

// singleRuns is the number of searches of a family, two on each server.
const singleRuns = 40

// A singleRun is a search on a server, and whether a deployment that the search did not see carries
// what it says of a single one.
type singleRun struct {
	*queue.Server
	queue.Result
	carries bool
}

// runSingles searches the tuning servers of a family.
func runSingles(family string) []singleRun {
	cfg := queue.Config(0.1)
	runs := make([]singleRun, singleRuns)
	var group sync.WaitGroup
	for w := range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for k := w; k < len(runs); k += runtime.GOMAXPROCS(0) {
				s := queue.Tuning.Run(family, k)
				r := s.Search(rate.NewAdaptive(cfg), cfg)
				runs[k] = singleRun{s, r, carries(s, r.Found.Single, cfg.Thresholds[0])}
			}
		})
	}
	group.Wait()
	return runs
}

// carries reports whether a new deployment of the server, in the lower of two states, carries the
// rate in steady state.
func carries(s *queue.Server, rate, threshold float64) bool {
	const unseen = 1000 // a number beyond those of a search
	lower := *s
	lower.Lower = 1
	d := lower.Deploy(queue.Sizing(), unseen, 0)
	d.Run(sim.Trial{Rate: rate, Duration: 5 * time.Minute}) // a backlog shows late
	o := d.Run(sim.Trial{Rate: rate, Duration: 2 * time.Minute})
	return o.SuccessRatio() >= threshold
}

// checkSingle checks that about nine new deployments of ten carry what the searches say of a single
// one, and that searches do not say too little instead.
func checkSingle(t *testing.T, family string, runs []singleRun) {
	t.Helper()
	const promised, least = 0.9, 0.8 // least: mean share of the capacity
	carry, share := 0, 0.0
	for k, r := range runs {
		if r.carries {
			carry++
		}
		share += r.Found.Single / r.Truth / float64(len(runs))
		if r.Found.Single <= 0 || r.Found.Single > r.Found.Rate {
			t.Errorf("%s, run %d: a single deployment carries %g, the capacity is %g", family, k, r.Found.Single, r.Found.Rate)
		}
	}
	p := queue.TooFew(carry, len(runs), promised)
	t.Logf("%s: %d of %d new deployments carry what searches say of a single one (p %.2g), %.3f of the capacity", family, carry, len(runs), p, share)
	if p < 0.001 {
		t.Errorf("%s: %d of %d new deployments carry what searches say of a single one (p %.2g), want %g of them", family, carry, len(runs), p, promised)
	}
	if share < least {
		t.Errorf("%s: searches say that a single deployment carries %.3f of the capacity, want at least %g", family, share, least)
	}
}

// TestDeploymentsThatDiffer checks what searches say of a single deployment, and of the standard
// deviation between deployments.
func TestDeploymentsThatDiffer(t *testing.T) {
	runs := runSingles(queue.Luck)
	checkSingle(t, queue.Luck, runs)
	found, truth := 0.0, 0.0 // sums of variances
	for _, r := range runs {
		found += r.Found.SD / r.Found.Rate * r.Found.SD / r.Found.Rate
		truth += r.Luck * r.Luck
	}
	// The capacity differs by somewhat more than the speed where calls queue long, and a climb has its own error.
	const most = 1.5
	if ratio := math.Sqrt(found / truth); ratio > most || ratio < 1/most {
		t.Errorf("deployments differ by %.2f times their true standard deviation", ratio)
	}
}

// TestDeploymentsOfTwoStates checks what searches say of a single deployment and of two states.
func TestDeploymentsOfTwoStates(t *testing.T) {
	runs := runSingles(queue.TwoState)
	checkSingle(t, queue.TwoState, runs)
	known, held := 0, 0
	for k, r := range runs {
		s := r.Found.States
		if s == nil {
			continue
		}
		known++
		if s.ShareLow <= r.Lower && r.Lower <= s.ShareHigh {
			held++
		}
		if s.Lower >= s.Upper || s.ShareLow > s.Share || s.Share > s.ShareHigh {
			t.Errorf("run %d: states %+v", k, *s)
		}
	}
	p := queue.TooFew(held, known, 0.95)
	t.Logf("%d of %d searches find two states, %d hold the share of the lower one (p %.2g)", known, len(runs), held, p)
	if 3*known < len(runs) {
		t.Errorf("%d of %d searches find two states, want at least a third", known, len(runs))
	}
	if p < 0.001 {
		t.Errorf("%d of %d intervals hold the share of the lower state (p %.2g)", held, known, p)
	}
}

// TestDeploymentsThatDifferTooMuch checks that a search gives up, and says why, where no affordable
// number of deployments is enough.
func TestDeploymentsThatDifferTooMuch(t *testing.T) {
	cfg := queue.Config(0.1)
	s := queue.Tuning.Server(queue.Luck, 13) // a slow one: its calls are simulated soon
	s.Luck = 0.3
	r := s.Search(rate.NewAdaptive(cfg), cfg)
	why := regexp.MustCompile(`^deployments differ too much \(\d+\.\d%\) for a precision of 0\.1: (\d+) of them give \S+, about (\d+) would be needed`)
	text := why.FindStringSubmatch(r.Why)
	if text == nil {
		t.Fatalf("the search ended with %q after %d deployments", r.Why, r.Found.Deployments)
	}
	needed, err := strconv.Atoi(text[2])
	if err != nil || text[1] != strconv.Itoa(r.Found.Deployments) || needed <= r.Found.Deployments {
		t.Errorf("%q, but %d deployments were measured", r.Why, r.Found.Deployments)
	}
	if r.Width <= cfg.Precision || r.Found.SD < 0.15*r.Found.Rate || r.Found.SD > 0.6*r.Found.Rate {
		t.Errorf("found %+v, want a wide interval and a standard deviation of about 0.3", r.Found)
	}
}

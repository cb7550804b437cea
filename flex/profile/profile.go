// Package profile reads the capacity of one instance of an aggregate from the run folder of
// vitrine characterize.
package profile

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"vitrine"
	"vitrine/result"
)

// A Question selects a capacity in a profile.
type Question struct {
	Function  string            // the deployment's vnf_name
	Size      string            // such as bn1s-sp1s-hs1s
	Substrate string            // empty: any
	Success   float64           // objective of the success ratio, 0..1; 0: the profile's first threshold, which is its highest
	P99       time.Duration     // objective of the 99th percentile of latency; 0: none
	Host      result.Host       // where the instances will run
	Members   map[string]Member // members of the aggregate, by component; empty: do not derive the CPU cost
}

// A Member is the instances of one component in an aggregate.
type Member struct {
	Count int
	VCPUs float64 // of each instance
}

// An Answer is the capacity of one instance.
type Answer struct {
	Rate float64       // in the unit of the profile; see carried for its confidence
	Boot time.Duration // median time from start to ready; 0: not known
	Says string        // evidence for the rate, for people
	Idle float64       // CPUs that all members together use without load
	Each float64       // CPU seconds of a call, of all members together; 0: not known
}

// Read answers the question from a run folder, or from the profile.json in it. The error is a
// *vitrine.BadInput if the profile is of another function, host or substrate, lacks the size,
// or does not show that the objective is met.
func Read(path string, q Question) (Answer, error) {
	dir := path
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		dir = filepath.Dir(path)
	}
	refuse := func(found, want string) (Answer, error) {
		return Answer{}, &vitrine.BadInput{File: path, Found: found, Want: want}
	}
	data, err := result.Load(dir)
	if err != nil {
		return refuse(err.Error(), "want the run folder of vitrine characterize, which says on which host it was measured; or give rate")
	}
	if data.ProfileError != nil {
		return refuse(data.ProfileError.Error(), "characterize with this version of vitrine, or give rate")
	}
	if data.Profile == nil {
		return refuse("a run without a capacity profile", "want a finished run of vitrine characterize; or give rate")
	}
	if data.Profile.Function != q.Function {
		return refuse("a profile of "+data.Profile.Function, "want one of "+q.Function+": characterize it, or give rate")
	}
	if differ := data.Manifest.Host.MachineDifferences(q.Host); len(differ) > 0 {
		return refuse(fmt.Sprintf("a profile of another host: %s there, %s here", differ[0].Then, differ[0].Now), "characterize on this host, or give rate")
	}
	setting, size, why := find(data.Profile, q)
	if size == nil {
		return refuse(why, "characterize this size, or give rate")
	}
	if highest := data.Profile.Thresholds[0]; highest < q.Success {
		return refuse(fmt.Sprintf("a profile at a success ratio of %g, below the objective of %g", highest, q.Success),
			fmt.Sprintf("characterize with a threshold of at least %g in the workload, loosen the objective, or give rate", q.Success))
	}
	a, why := answer(data.Profile, size, q)
	if why != "" {
		return refuse(why, "continue an unfinished run with --resume, choose another size, loosen the objective, or give rate")
	}
	if len(q.Members) > 0 {
		a.Idle, a.Each = cost(setting, q.Members)
	}
	return a, nil
}

// find returns the size in the setting with the substrate. If several settings match, such as
// with and without pinning, it returns the one with the lowest capacity.
func find(p *vitrine.Profile, q Question) (setting *vitrine.Setting, found *vitrine.SizeProfile, why string) {
	var sizes, substrates []string
	for i := range p.Settings {
		s := &p.Settings[i]
		substrates = append(substrates, s.Substrate)
		if q.Substrate != "" && s.Substrate != q.Substrate {
			continue
		}
		for k := range s.Sizes {
			z := &s.Sizes[k]
			sizes = append(sizes, z.Sizing)
			if z.Sizing == q.Size && (found == nil || z.Low < found.Low) {
				setting, found = s, z
			}
		}
	}
	if found != nil {
		return setting, found, ""
	}
	if len(sizes) == 0 {
		return nil, nil, fmt.Sprintf("a profile on substrate %s, not on %s", strings.Join(substrates, ", "), q.Substrate)
	}
	return nil, nil, fmt.Sprintf("a profile without size %s: it has %s", q.Size, strings.Join(sizes[:min(len(sizes), 8)], ", "))
}

// answer derives the highest rate that meets both the success ratio and the latency objective.
// why says why there is no such rate.
func answer(p *vitrine.Profile, z *vitrine.SizeProfile, q Question) (a Answer, why string) {
	if z.Unfinished != "" {
		return a, fmt.Sprintf("size %s, whose search for the capacity did not end: %s", z.Sizing, z.Unfinished)
	}
	a.Boot = time.Duration(z.Boot * float64(time.Second))
	a.Rate, a.Says, why = carried(p, z, cmp.Or(q.Success, p.Thresholds[0]))
	if why != "" || q.P99 == 0 {
		return a, why
	}
	if len(z.Latency) == 0 {
		return a, fmt.Sprintf("size %s (%s) without a latency, so nothing shows that it meets p99", z.Sizing, z.Source)
	}
	points := slices.SortedFunc(slices.Values(z.Latency), func(x, y vitrine.LatencyPoint) int {
		return cmp.Compare(x.Rate, y.Rate)
	})
	if highest := points[len(points)-1].Rate; highest < a.Rate {
		a.Rate, a.Says = highest, fmt.Sprintf("%.4g %s is the highest rate whose latency is known", highest, p.Unit)
	}
	bound := float64(q.P99) / float64(time.Millisecond)
	for i, x := range points {
		if x.P99 <= bound {
			continue
		}
		if i == 0 {
			return a, fmt.Sprintf("size %s has a 99th percentile of %.4g ms at %.4g %s, the lowest rate that was measured", z.Sizing, x.P99, x.Rate, p.Unit)
		}
		if below := points[i-1].Rate; below < a.Rate {
			a.Rate = below
			a.Says = fmt.Sprintf("the 99th percentile is %.4g ms at %.4g %s, and %.4g ms at %.4g", points[i-1].P99, below, p.Unit, x.P99, x.Rate)
		}
		break
	}
	return a, ""
}

// carried returns the rate at which a new deployment meets the success ratio with 90%
// probability. If the profile lacks it, carried returns the lower end of the confidence
// interval of the capacity.
func carried(p *vitrine.Profile, z *vitrine.SizeProfile, success float64) (rate float64, says, why string) {
	if z.Source == vitrine.SourceMeasured {
		for _, c := range byThreshold(z.Capacities) {
			if c.Threshold < success {
				continue
			}
			switch {
			case c.Censored == vitrine.CensoredBelow || c.Unmeasured():
				return 0, "", fmt.Sprintf("size %s met a success ratio of %.4g at no rate", z.Sizing, c.Threshold)
			case c.Single > 0:
				return c.Single, fmt.Sprintf("a new deployment meets a success ratio of %.4g with 90%% probability", c.Threshold), ""
			case c.Low > 0:
				return c.Low, fmt.Sprintf("lower end of the interval of the capacity at a success ratio of %.4g", c.Threshold), ""
			}
		}
	}
	if !(z.Low > 0) || z.Censored == vitrine.CensoredBelow {
		return 0, "", fmt.Sprintf("size %s carries no rate for sure", z.Sizing)
	}
	return z.Low, fmt.Sprintf("lower end of the interval, %s, at a success ratio of %.4g", z.Source, p.Thresholds[0]), ""
}

func byThreshold(all []vitrine.Capacity) []vitrine.Capacity {
	return slices.SortedFunc(slices.Values(all), func(a, b vitrine.Capacity) int {
		return cmp.Compare(a.Threshold, b.Threshold)
	})
}

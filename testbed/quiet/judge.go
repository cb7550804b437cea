package quiet

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"vitrine"
)

// The limits on how much a trial may differ from the idle host.
// docs/decisions/0015-disturbed-trials.md has the measurements behind them.
const (
	// chainLimit is how much longer the dependent work may take than at the CPU's best
	// speed. A turbo that follows the temperature stays within it. A governor that lowers the
	// clock of an idle CPU does not: ClockAdvice.
	chainLimit = 0.25
	// DefaultSlowdown is the same limit for the independent work, if Guard.Slowdown does not
	// change it. A sibling thread that computes all the time slows this work by 0.6. A sibling
	// thread that computes half of the time, as any tenant of a shared machine may, slows it
	// by 0.3.
	DefaultSlowdown = 0.45
	// StrictSlowdown is the lower limit for capacities that must agree from one hour to the next. A
	// Survey tries it too.
	StrictSlowdown = 0.1
	// stealLimit is the largest share of any CPU that the hypervisor may take, and of one CPU that
	// limits above this process may take. It equals the default precision of a capacity.
	stealLimit = 0.05
	// otherLimit is the number of the run's CPUs that other processes may use together. The kernel
	// counts in units of 10 ms, and its tick samples interrupts, so a smaller limit would be noise
	// in a trial of a second.
	otherLimit = 0.1
	// outliers is the share of the slowest bursts that a mean leaves out.
	outliers = 0.1
	// best is the quantile of bursts that represents an undisturbed CPU. Even on a shared CPU,
	// some bursts of 35 µs are undisturbed.
	best = 0.1
	// ownSibling is how much longer the work may take on a CPU while the run's other CPUs work.
	// Above this limit, two CPUs of the run share a core, and trials on such a CPU are compared
	// with the slower time.
	ownSibling = 0.25
)

// A baseline is the reading of the idle host.
type baseline struct {
	best   []pace // by CPU, in the order of the run's CPUs
	shared []pace // the best while all CPUs of the run work; zero: the CPU shares no core with them
	usual  []pace // the mean
	use    use
}

// A use is the CPU time that others took from the run's CPUs during some time.
type use struct {
	steal     []float64 // CPUs, by CPU
	other     float64   // CPUs, over all CPUs of the run; NaN: unknown
	busiest   []string  // the processes that used the most, for the reason
	throttled float64   // CPUs that limits above this process took, such as that of a container
}

// A reading is the reading of the host around and during one trial.
type reading struct {
	before, during, after [][]pace // by CPU
	use                   use
}

// sortedTimes returns the times of one CPU's bursts, each part of the work in ascending order.
func sortedTimes(bursts []pace) (chain, wide []float64) {
	for _, b := range bursts {
		chain, wide = append(chain, b.chain), append(wide, b.wide)
	}
	slices.Sort(chain)
	slices.Sort(wide)
	return chain, wide
}

// mean returns the mean of the bursts. Each part leaves out its slowest tenth. Without
// bursts it is NaN.
func mean(bursts []pace) pace {
	trimmed := func(sorted []float64) float64 {
		keep := sorted[:len(sorted)-int(outliers*float64(len(sorted)))]
		var sum float64
		for _, v := range keep {
			sum += v
		}
		return sum / float64(len(keep))
	}
	chain, wide := sortedTimes(bursts)
	return pace{trimmed(chain), trimmed(wide)}
}

// bestOf returns the best quantile of the bursts. It needs at least one burst.
func bestOf(bursts []pace) pace {
	chain, wide := sortedTimes(bursts)
	i := int(best * float64(len(bursts)-1))
	return pace{chain[i], wide[i]}
}

// makeBaseline makes a baseline from bursts by CPU. The host was idle for before and
// after; for together, all CPUs of the run worked.
func makeBaseline(before, together, after [][]pace, taken use) baseline {
	b := baseline{use: taken}
	for i := range before {
		first, all, last := bestOf(before[i]), bestOf(together[i]), bestOf(after[i])
		var shared pace
		if all.wide > (1+ownSibling)*max(first.wide, last.wide) {
			shared = all
		}
		b.best = append(b.best, pace{min(first.chain, last.chain), min(first.wide, last.wide)})
		b.shared = append(b.shared, shared)
		b.usual = append(b.usual, mean(slices.Concat(before[i], after[i])))
	}
	return b
}

// improve lowers the best time if a trial's bursts were faster. A neighbour may have been busy
// while the baseline was read.
func (b baseline) improve(got reading) {
	for i := range b.best {
		seen := bestOf(slices.Concat(got.before[i], got.during[i], got.after[i]))
		b.best[i] = pace{min(b.best[i].chain, seen.chain), min(b.best[i].wide, seen.wide)}
	}
}

// normal returns the pace with which a trial's bursts on a CPU are compared.
func (b baseline) normal(i int) pace {
	return pace{max(b.best[i].chain, b.shared[i].chain), max(b.best[i].wide, b.shared[i].wide)}
}

// judge compares a trial's reading with the idle host. slowdown is the limit for the independent
// work. The reason is empty if the trial was not disturbed.
func judge(cpus []int, idle baseline, got reading, slowdown float64) (vitrine.HostReading, string) {
	host := vitrine.HostReading{
		Before: idle.speed(got.before), During: idle.speed(got.during), After: idle.speed(got.after),
	}
	var seen []string
	for i, cpu := range cpus {
		took, normal := mean(slices.Concat(got.before[i], got.during[i], got.after[i])), idle.normal(i)
		if took.chain > (1+chainLimit)*normal.chain {
			seen = append(seen, fmt.Sprintf("CPU %d ran at %.2f "+belowBest+", as with a lower clock", cpu, normal.chain/took.chain))
		} else if took.wide > (1+slowdown)*normal.wide {
			seen = append(seen, fmt.Sprintf("CPU %d ran at %.2f "+belowBest+", as beside a busy thread of the same core", cpu, normal.wide/took.wide))
		}
		host.Steal = max(host.Steal, got.use.steal[i])
	}
	seen = append(seen, got.use.beyond(cpus, idle.use)...)
	if !math.IsNaN(got.use.other) {
		host.Other = new(max(got.use.other, 0))
	}
	if len(seen) == 0 {
		return host, ""
	}
	return host, "disturbed: " + strings.Join(seen, "; ")
}

// belowBest is in the reason of a trial in which a CPU was slow.
const belowBest = "of its best speed"

// slow reports whether a trial's reason says that a CPU ran below its best speed.
func slow(reason string) bool { return strings.Contains(reason, belowBest) }

// ClockAdvice says what to do about a CPU frequency governor that lowers the clock of CPUs with
// little load. It is empty for the governor performance, and for an unknown one.
//
// The guard does not accept the lower clock, because a busy host may hide behind it. A call takes longer
// at that clock, too.
func ClockAdvice(governor string) string {
	if governor == "" || governor == "performance" {
		return ""
	}
	return fmt.Sprintf("the CPU frequency governor is %s, which may lower the clock: cpupower frequency-set -g performance", governor)
}

// AdviseClock adds the ClockAdvice to an error about disturbed trials, if the reason of the last one
// is a slow CPU. err may be nil.
func AdviseClock(err error, reason, governor string) error {
	if advice := ClockAdvice(governor); err != nil && advice != "" && slow(reason) {
		return fmt.Errorf("%w; %s", err, advice)
	}
	return err
}

// speed returns the lowest speed over CPUs and parts of the work, as a share of the
// best. It is 0 if a CPU has no burst.
func (b baseline) speed(bursts [][]pace) float64 {
	slowest := math.Inf(1)
	for i, of := range bursts {
		if len(of) == 0 {
			return 0
		}
		took, normal := mean(of), b.normal(i)
		slowest = min(slowest, normal.chain/took.chain, normal.wide/took.wide)
	}
	if math.IsInf(slowest, 0) {
		return 0
	}
	return slowest
}

// beyond lists where the hypervisor or other processes took more than the limit above their
// use on the idle host, and the time that CPU limits above this process took. The run does not
// notice such a limit otherwise: it stops all CPUs of the run, and their work is timed in CPU time.
func (u use) beyond(cpus []int, idle use) (seen []string) {
	for i, cpu := range cpus {
		usual := 0.0
		if i < len(idle.steal) {
			usual = idle.steal[i]
		}
		if u.steal[i]-usual > stealLimit {
			seen = append(seen, fmt.Sprintf("the hypervisor took %.2f of CPU %d", u.steal[i], cpu))
		}
	}
	usual := 0.0
	if idle.other > 0 { // false for NaN
		usual = idle.other
	}
	if u.other-usual > otherLimit { // false for NaN
		text := fmt.Sprintf("other processes used %.2f CPUs of the run's %d", u.other, len(cpus))
		if len(u.busiest) > 0 {
			text += " (the busiest on the host: " + strings.Join(u.busiest, ", ") + ")"
		}
		seen = append(seen, text)
	}
	if u.throttled > stealLimit {
		seen = append(seen, fmt.Sprintf("a CPU limit above this process took %.2f CPUs", u.throttled))
	}
	return seen
}

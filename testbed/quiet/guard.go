// Package quiet decides whether something on the host disturbed a trial. It times a fixed amount
// of work on each CPU of a run before, during and after a trial, and reads how much of these CPUs
// the hypervisor and other processes took. It compares both with a baseline of the idle host.
// judge.go makes the decision and reads nothing from the host.
package quiet

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sync/errgroup"

	"vitrine"
	"vitrine/internal/thread"
)

// Constants of the readings.
const (
	// Pause between bursts during a trial: 35 µs in 50 ms are 0.07% of a CPU.
	duringPause = 50 * time.Millisecond
	// Bursts before a trial, and again after it, and the pause between them.
	aroundBursts = 20
	aroundPause  = time.Millisecond
	// Bursts of each half of the baseline, 2 s, and the pause between them.
	baseBursts = 200
	basePause  = 10 * time.Millisecond
	// Bursts between the halves: all CPUs of the run work without a pause, for some 200 ms.
	togetherBursts = 5000
	// baseTries is how often the baseline is taken while the host is not idle.
	baseTries = 5
	// backOff is the pause after a disturbed trial. It doubles with each further disturbed
	// trial in a row, up to mostRest.
	backOff  = time.Second
	mostRest = 8 * time.Second
)

// A Guard watches the CPUs of one run. Its methods may be called from one goroutine
// at a time.
type Guard struct {
	// Slowdown is how much longer the independent work may take during a trial than at best, as a
	// share. More means that the trial was disturbed. New sets DefaultSlowdown.
	Slowdown float64

	cpus []int
	fs   procfs.FS
	idle baseline
	row  int // disturbed trials in a row
}

// New takes the baseline of the CPUs. The caller must have locked them, and nothing of the run may
// use them yet. New takes some 5 s. If the host is not idle, New tries again, up to baseTries
// times. Then it returns an error with its observations.
func New(ctx context.Context, cpus ...int) (*Guard, error) {
	cpus = slices.Compact(slices.Sorted(slices.Values(cpus)))
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return nil, fmt.Errorf("read the host: %w", err)
	}
	g := &Guard{Slowdown: DefaultSlowdown, cpus: cpus, fs: fs}
	var seen []string
	for range baseTries {
		if seen, err = g.readIdle(ctx); err != nil {
			return nil, fmt.Errorf("read the idle host: %w", err)
		}
		if len(seen) == 0 {
			return g, nil
		}
	}
	return nil, fmt.Errorf("%w: the host must be idle before the run starts, but it was busy in all %d readings; the last: %s", ErrTooNoisy, baseTries, strings.Join(seen, "; "))
}

// readIdle takes the baseline. seen has the reasons why the host was not idle; empty: it was idle.
func (g *Guard) readIdle(ctx context.Context) (seen []string, err error) {
	first, before, err := g.readAlone(ctx)
	if err != nil {
		return nil, err
	}
	together, err := g.onEveryCPU(func() ([]pace, error) { return timeBursts(ctx, togetherBursts, 0) })
	if err != nil {
		return nil, err
	}
	last, after, err := g.readAlone(ctx)
	if err != nil {
		return nil, err
	}
	g.idle = makeBaseline(before, together, after, first)
	return append(first.beyond(g.cpus, use{}), last.beyond(g.cpus, use{})...), nil
}

// readAlone reads the idle host while nothing of the run works.
func (g *Guard) readAlone(ctx context.Context) (use, [][]pace, error) {
	before, err := readCount(g.fs)
	if err != nil {
		return use{}, nil, err
	}
	bursts, err := g.onEveryCPU(func() ([]pace, error) { return timeBursts(ctx, baseBursts, basePause) })
	if err != nil {
		return use{}, nil, err
	}
	after, err := readCount(g.fs)
	return after.since(before, g.cpus, 0), bursts, err
}

// onEveryCPU calls read once on each CPU, all at the same time.
func (g *Guard) onEveryCPU(read func() ([]pace, error)) ([][]pace, error) {
	all := make([][]pace, len(g.cpus))
	var group errgroup.Group
	for i, cpu := range g.cpus {
		group.Go(func() (err error) {
			runtime.LockOSThread() // never unlocked: the thread, with its affinity, ends with the goroutine
			if _, err := thread.Keep(cpu); err != nil {
				return fmt.Errorf("run on CPU %d: %w", cpu, err)
			}
			all[i], err = read()
			return err
		})
	}
	return all, group.Wait()
}

// timeBursts times that many bursts.
func timeBursts(ctx context.Context, bursts int, pause time.Duration) ([]pace, error) {
	all := make([]pace, 0, bursts)
	for range bursts {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		p, err := burst()
		if err != nil {
			return nil, fmt.Errorf("time the fixed work: %w", err)
		}
		all = append(all, p)
		if pause > 0 {
			time.Sleep(pause)
		}
	}
	return all, nil
}

// String describes the idle host.
func (g *Guard) String() string {
	var all []string
	for i, cpu := range g.cpus {
		best, usual := g.idle.best[i], g.idle.usual[i]
		all = append(all, fmt.Sprintf("CPU %d does the fixed work at best in %.2f µs (dependent) and %.2f µs (independent), at the start in %.2f and %.2f",
			cpu, best.chain/1e3, best.wide/1e3, usual.chain/1e3, usual.wide/1e3))
		if g.idle.shared[i] != (pace{}) {
			all = append(all, fmt.Sprintf("CPU %d shares its core with another CPU of the run", cpu))
		}
	}
	if math.IsNaN(g.idle.use.other) {
		all = append(all, "other processes and steal are not judged, because /proc/stat does not show all these CPUs")
	} else {
		all = append(all, fmt.Sprintf("other processes used %.2f CPUs", max(g.idle.use.other, 0)))
	}
	all = append(all, fmt.Sprintf("during a trial, the independent work may take %g longer than at best", g.Slowdown))
	return strings.Join(all, "; ")
}

// A hostWatch is a Guard's Watch.
type hostWatch struct {
	guard   *Guard
	first   count
	last    count
	reading reading
	stop    context.CancelFunc
	done    sync.WaitGroup
	failed  error
}

// Watch reads the host and begins to watch it. After disturbed trials it waits
// first, because the disturbance may end.
func (g *Guard) Watch(ctx context.Context) (_ Watch, err error) {
	if g.row > 0 {
		select {
		case <-time.After(min(backOff<<(g.row-1), mostRest)):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	w := &hostWatch{guard: g}
	if w.reading.before, err = g.readAround(ctx); err != nil {
		return nil, err
	}
	if w.first, err = readCount(g.fs); err != nil {
		return nil, err
	}
	over, stop := context.WithCancel(ctx)
	w.stop = stop
	w.done.Go(func() {
		w.reading.during, w.failed = g.onEveryCPU(func() ([]pace, error) { return timeBurstsUntil(over) })
	})
	return w, nil
}

// readAround reads the CPUs before or after a trial.
func (g *Guard) readAround(ctx context.Context) ([][]pace, error) {
	return g.onEveryCPU(func() ([]pace, error) { return timeBursts(ctx, aroundBursts, aroundPause) })
}

// timeBurstsUntil times a burst every duringPause until the context ends.
func timeBurstsUntil(ctx context.Context) (all []pace, err error) {
	ticker := time.NewTicker(duringPause)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return all, nil
		case <-ticker.C:
		}
		p, err := burst()
		if err != nil {
			return nil, fmt.Errorf("time the fixed work: %w", err)
		}
		all = append(all, p)
	}
}

// End ends the watching and returns the time that it covers.
func (w *hostWatch) End(ctx context.Context) (from, to time.Time, err error) {
	w.stop()
	w.done.Wait()
	if w.failed != nil {
		return from, to, w.failed
	}
	if w.last, err = readCount(w.guard.fs); err != nil {
		return from, to, err
	}
	if w.reading.after, err = w.guard.readAround(ctx); err != nil {
		return from, to, err
	}
	return w.first.at, w.last.at, nil
}

// Judge returns the reading, and the reason why the trial was disturbed. The reason is empty if it
// was not disturbed. own is the number of CPUs that the run's instances used in the time that End
// returned. If own is NaN, it is unknown, and so is the use of other processes. The reason names no
// process of the instances.
func (w *hostWatch) Judge(own float64, instances ...vitrine.Vantage) (vitrine.HostReading, string) {
	g := w.guard
	w.last.mark(instances)
	w.reading.use = w.last.since(w.first, g.cpus, own)
	g.idle.improve(w.reading)
	host, why := judge(g.cpus, g.idle, w.reading, g.Slowdown)
	if why == "" {
		g.row = 0
	} else {
		g.row++
	}
	return host, why
}

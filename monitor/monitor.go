// Package monitor watches instances and their host at a fixed rate. It writes every sample as CSV
// and computes each instance's mean use over a window.
//
// The monitor reads counters that the kernel keeps in nanoseconds, microseconds or bytes: the
// cgroup's, or the process's CPU clock if there is no cgroup. Only the host's rows (busy, softirq
// and steal time from /proc/stat) come in ticks of 10 ms. Over an interval of 100 ms they are
// precise to a tenth of a CPU. A value that cannot be read is empty and has a reason; it is never 0.
package monitor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/result"
)

// DefaultInterval is 10 Hz.
const DefaultInterval = 100 * time.Millisecond

// Config configures a Monitor.
type Config struct {
	Interval time.Duration // between samples; 0: DefaultInterval
	Origin   time.Time     // time at which t_s is 0: the expected start of the trial's window, perhaps in the future; zero: the start of watching
}

// flushAt is the number of bytes of CSV that are buffered before a write. Writes are rare enough
// not to disturb sampling, and frequent enough that a crash loses little.
const flushAt = 1 << 16

// A Monitor watches until Stop or the end of its context. It keeps about 60 bytes per sample and
// instance for Use.
type Monitor struct {
	interval time.Duration
	longest  time.Duration // between two samples without a gap
	began    time.Time
	offset   time.Duration // from the origin to began
	cancel   context.CancelFunc
	done     chan struct{}

	mu         sync.Mutex // guards the fields below; Use reads the histories
	host       *host
	instances  []*subject
	endings    *endings
	buf        []byte // for reading files, one at a time
	out        io.Writer
	rows       []byte // CSV not written yet
	failed     error  // the first write error; nothing is written after it
	missed     int    // samples that were due but not taken
	unreported int    // missed samples that no row reports yet
}

// Start starts to watch. If a part of a vantage cannot be read, Start does not fail: the part is
// missing in the rows and in Use, with the reason. The caller must call Stop. The monitor does not
// write to csv after Stop returns.
func Start(ctx context.Context, config Config, vantages []vitrine.Vantage, csv io.Writer) (*Monitor, error) {
	m, err := prepare(config, vantages, csv, "/proc")
	if err != nil {
		return nil, fmt.Errorf("watch the instances: %w", err)
	}
	m.sample()
	ticker, err := newTicker(m.interval-time.Since(m.began), m.interval)
	if err != nil {
		m.close()
		return nil, fmt.Errorf("watch the instances: %w", err)
	}
	ctx, m.cancel = context.WithCancel(ctx)
	context.AfterFunc(ctx, ticker.stop)
	go m.loop(ticker)
	return m, nil
}

// prepare opens all files and reads nothing yet.
func prepare(config Config, vantages []vitrine.Vantage, csv io.Writer, proc string) (*Monitor, error) {
	if config.Interval < 0 {
		return nil, fmt.Errorf("interval %v: want more than 0", config.Interval)
	}
	m := &Monitor{
		interval: config.Interval,
		began:    time.Now(),
		done:     make(chan struct{}),
		buf:      make([]byte, 1<<16),
		rows:     make([]byte, 0, flushAt+flushAt/4),
		out:      csv,
	}
	if m.interval == 0 {
		m.interval = DefaultInterval
	}
	m.longest = max(leastGap, gapIntervals*m.interval)
	if !config.Origin.IsZero() {
		m.offset = m.began.Sub(config.Origin)
	}
	var err error
	if m.endings, err = newEndings(); err != nil {
		return nil, fmt.Errorf("watch for the end of processes: %w", err)
	}
	m.open(vantages, proc)
	m.rows = append(append(m.rows, result.UsageHeader...), '\n')
	return m, nil
}

func (m *Monitor) open(vantages []vitrine.Vantage, proc string) {
	slow := max(1, int(time.Second/m.interval))
	for i, v := range vantages {
		s := openInstance(v, proc, slow, i)
		m.instances = append(m.instances, s)
		if v.PID > 0 && errors.Is(m.endings.watch(v.PID, i), unix.ESRCH) {
			s.end("the main process had ended before the monitor started")
		}
	}
	m.host = openHost(proc, m.buf)
}

// loop samples at each tick. If a tick comes during a sample, the next sample is only late. The
// tick counts as missed if another tick follows before the sample ends.
func (m *Monitor) loop(ticker *ticker) {
	defer close(m.done)
	defer ticker.close()
	for {
		missed, ok := ticker.next()
		if !ok {
			break
		}
		m.skip(missed)
		m.sample()
	}
	m.sample() // for the time after the last tick
	m.mu.Lock()
	defer m.mu.Unlock()
	m.countKilled()
	m.flush()
	m.close()
}

func (m *Monitor) skip(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.missed += n
	m.unreported += n
}

// sample reads all counters once. It allocates only to grow the histories.
func (m *Monitor) sample() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.endings.ended(m.endInstance)
	at := time.Since(m.began)
	m.host.read(m.buf)
	for _, s := range m.host.subjects {
		s.at = at
		m.row(s)
	}
	for _, s := range m.instances {
		s.at = time.Since(m.began)
		s.read(m.buf)
		s.remember(m.longest)
		m.row(s)
	}
	if len(m.rows) >= flushAt {
		m.flush()
	}
}

func (m *Monitor) endInstance(index int) { m.instances[index].end("the main process has ended") }

// row appends the subject's row if an earlier sample exists, because rates need two samples. After
// a late sample, row skips the punctual sample that soon follows, because rates over a short time
// are noise.
func (m *Monitor) row(s *subject) {
	if !s.started {
		s.started, s.lastAt, s.last = true, s.at, s.total
		return
	}
	if s.at-s.lastAt < m.interval/2 {
		return
	}
	b := appendNumber(m.rows, float64(m.offset+s.at)/float64(time.Second), 10_000)
	b = append(b, s.label...)
	b = s.appendCells(b)
	missing := s.missing()
	if s == m.host.subjects[0] && m.unreported > 0 {
		missing = missedTicks(m.unreported, missing)
		m.unreported = 0
	}
	b = append(b, missing...)
	m.rows = append(b, '\n')
	s.lastAt, s.last = s.at, s.total
}

func (m *Monitor) flush() {
	if m.failed == nil {
		_, m.failed = m.out.Write(m.rows)
	}
	m.rows = m.rows[:0]
}

func (m *Monitor) close() {
	for _, s := range m.instances {
		s.close()
	}
	m.host.close()
	m.endings.close()
}

// Missed returns how many samples were due but not taken, because the host or the disk was too
// slow.
func (m *Monitor) Missed() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.missed
}

// countKilled ends the count of killed processes.
func (m *Monitor) countKilled() {
	for _, s := range m.instances {
		s.killed = killed(s.use.vantage) - s.killed
	}
}

// Killed returns, by instance, how many of its processes the kernel killed for lack of memory between
// Start and Stop. It omits instances without any, and those whose cgroup cannot be read. Call it after
// Stop.
func (m *Monitor) Killed() map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make(map[string]int)
	for _, s := range m.instances {
		if s.killed > 0 {
			all[s.use.vantage.Instance] = s.killed
		}
	}
	return all
}

// Stop takes a last sample, stops the sampling, writes the remaining rows and closes all files. It
// returns the first write error. After a write error, sampling continues without rows. Stop may be
// called more than once. Use still works after it.
func (m *Monitor) Stop() error {
	m.cancel()
	<-m.done
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failed != nil {
		return fmt.Errorf("write the samples: %w", m.failed)
	}
	return nil
}

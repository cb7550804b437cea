// Package monitor watches instances and the host they run on, at a fixed rate:
// it writes every sample as CSV and gives each instance's mean use over a
// window.
//
// Counters are read where the kernel keeps them in nanoseconds or bytes: the
// cgroup's, or the process's own CPU clock where there is no cgroup. Only the
// host's own rows (busy, softirq and steal time from /proc/stat) come in ticks
// of 10 ms, so over one interval of 100 ms they are good to a tenth of a CPU.
// What cannot be read is empty and has a reason; it is never 0.
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
)

// DefaultInterval is 10 Hz.
const DefaultInterval = 100 * time.Millisecond

// Config is how to watch.
type Config struct {
	Interval time.Duration // between samples; 0: DefaultInterval
	Origin   time.Time     // where t_s is 0, may lie ahead: the trial's window; zero: the start of watching
}

// Header is the first line of the CSV. There is a row for each instance, one
// for the "host" and one for each of its CPUs ("cpu0", of component "host"), at
// each sample but the first, which only sets the counters:
//
//   - t_s: seconds since Config.Origin, negative before it; each rate is the
//     mean since the subject's row before
//   - cpu: CPUs in use; memory_bytes: the working set; rx_bytes_s, tx_bytes_s:
//     over all interfaces but lo
//   - throttled: share of the time that the CPU quota held the instance back,
//     summed over CPUs, so that it can exceed 1
//   - softirq, steal: CPUs that went to it
//   - missing: why cells are empty, "network: why; throttled: why", and in the
//     host's row how many samples were due before it and not taken
const Header = "t_s,instance,component,cpu,memory_bytes,rx_bytes_s,tx_bytes_s,throttled,softirq,steal,missing"

// flushAt is how many bytes of CSV gather before they are written: rarely
// enough to stay off the sampling path, often enough that a crash loses little.
const flushAt = 1 << 16

// A Monitor watches until Stop or the end of its context. It keeps some 50
// bytes a sample and instance for Use.
type Monitor struct {
	interval time.Duration
	began    time.Time
	offset   time.Duration // of began, from the origin
	cancel   context.CancelFunc
	done     chan struct{}

	mu        sync.Mutex // guards what follows, of which Use reads the histories
	host      *host
	instances []*subject
	endings   *endings
	buf       []byte // what files are read into, one after the other
	out       io.Writer
	rows      []byte // CSV not yet written
	failed    error  // the first failure to write; nothing is written after it
	missed    int    // deadlines without a sample
	unsaid    int    // of those, not yet in a row
}

// Start begins to watch. What of a vantage cannot be read is missing in the
// rows and in Use, with the reason; it fails no start. The caller must call
// Stop, and csv is not written to after that.
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

// prepare opens everything and reads nothing yet.
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
	if !config.Origin.IsZero() {
		m.offset = m.began.Sub(config.Origin)
	}
	var err error
	if m.endings, err = newEndings(); err != nil {
		return nil, fmt.Errorf("watch for the end of processes: %w", err)
	}
	m.open(vantages, proc)
	m.rows = append(append(m.rows, Header...), '\n')
	return m, nil
}

func (m *Monitor) open(vantages []vitrine.Vantage, proc string) {
	slow := max(1, int(time.Second/m.interval))
	for i, v := range vantages {
		s := openInstance(v, proc, slow, i)
		m.instances = append(m.instances, s)
		if v.PID > 0 && errors.Is(m.endings.watch(v.PID, i), unix.ESRCH) {
			s.end("the main process had ended before watching began")
		}
	}
	m.host = openHost(proc, m.buf)
}

// loop samples at each tick; one that comes while a sample is taken is late,
// and counted as missed once the next has come as well.
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
	m.sample() // what follows the last tick
	m.mu.Lock()
	defer m.mu.Unlock()
	m.flush()
	m.close()
}

func (m *Monitor) skip(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.missed += n
	m.unsaid += n
}

// sample reads everything once. It allocates nothing but, now and then, room
// for the histories.
func (m *Monitor) sample() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.endings.ended(m.bury)
	at := time.Since(m.began)
	m.host.read(m.buf)
	for _, s := range m.host.subjects {
		s.at = at
		m.row(s)
	}
	for _, s := range m.instances {
		s.at = time.Since(m.began)
		s.read(m.buf)
		s.remember()
		m.row(s)
	}
	if len(m.rows) >= flushAt {
		m.flush()
	}
}

func (m *Monitor) bury(index int) { m.instances[index].end("the main process has ended") }

// row appends the subject's row, once there is one before to take rates from.
// A sample that came late is soon followed by one in time; that one's row is
// left to the next, for over a sliver of time every rate is noise.
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
	if s == m.host.subjects[0] && m.unsaid > 0 {
		missing = missedTicks(m.unsaid, missing)
		m.unsaid = 0
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

// Missed is how many samples were due and not taken, because the host or the
// disk was too slow.
func (m *Monitor) Missed() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.missed
}

// Stop takes a last sample, ends the watching, writes what rows are left and
// closes all files. Its error is the first failure to write rows, after which
// sampling went on and no row was written. It may be called more than once;
// Use keeps working.
func (m *Monitor) Stop() error {
	m.cancel()
	<-m.done
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failed != nil {
		return fmt.Errorf("write what was sampled: %w", m.failed)
	}
	return nil
}

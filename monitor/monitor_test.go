package monitor

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/result"
)

// A fake is a cgroup v2 and a /proc made of plain files.
type fake struct {
	t            *testing.T
	cgroup, proc string
}

func newFake(t *testing.T) fake {
	f := fake{t, t.TempDir(), t.TempDir()}
	if err := os.Mkdir(filepath.Join(f.proc, "net"), 0o700); err != nil {
		t.Fatal(err)
	}
	f.write(f.cgroup, "memory.stat", "anon 5\ninactive_file 1000\nactive_file 77\n")
	f.write(f.proc, "meminfo", "MemTotal:        1000 kB\nMemFree:          100 kB\nMemAvailable:     400 kB\n")
	return f
}

func (f fake) write(folder, name, text string) {
	f.t.Helper()
	// Write in place, because the monitor has the file open.
	if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// set sets the cgroup's CPU time and throttled time in us, and its memory in bytes. It also sets
// the host's busy, softirq and steal ticks, and its received bytes.
func (f fake) set(use, throttled, memory, busy, softirq, steal, received int) {
	f.t.Helper()
	f.write(f.cgroup, "cpu.stat", fmt.Sprintf("usage_usec %d\nuser_usec 1\nsystem_usec 2\nnr_periods 3\nnr_throttled 4\nthrottled_usec %d\n", use, throttled))
	f.write(f.cgroup, "memory.current", fmt.Sprintln(memory))
	line := fmt.Sprintf(" %d 0 0 5000 7 0 %d %d 0 0\n", busy-softirq, softirq, steal)
	f.write(f.proc, "stat", "cpu "+line+"cpu0"+line+"intr 5 6 7\nctxt 8\n")
	f.write(f.proc, "net/dev", fmt.Sprintf("head\nhead\n    lo: 5 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0\n  eth0: %d 1 0 0 0 0 0 0 7 1 0 0 0 0 0 0\n", received))
}

func TestRowsAndUseOfCgroupV2(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.set(1_000_000, 0, 11_000, 100, 10, 5, 100)
		var out bytes.Buffer
		v := vitrine.Vantage{Instance: "sprout-1", Component: "sprout", CgroupV2: f.cgroup, VCPUs: 0.5, Memory: 1 << 20}
		m, err := prepare(Config{Origin: time.Now().Add(150 * time.Millisecond)}, []vitrine.Vantage{v}, &out, f.proc)
		if err != nil {
			t.Fatal(err)
		}
		m.sample()
		time.Sleep(100 * time.Millisecond)
		f.set(1_050_000, 10_000, 21_000, 106, 12, 5, 1100)
		m.sample()
		time.Sleep(100 * time.Millisecond)
		f.set(1_070_000, 40_000, 31_000, 106, 12, 6, 1100)
		m.skip(2)
		m.sample()
		time.Sleep(10 * time.Millisecond)
		m.sample() // too soon for rows
		time.Sleep(90 * time.Millisecond)
		m.sample()
		m.flush()
		m.close()

		want := result.UsageHeader + `
-0.0500,host,host,0.6000,614400,10000,0,,0.2000,0.0000,throttled: the host has no quota
-0.0500,cpu0,host,0.6000,,,,,0.2000,0.0000,"memory, network, throttled: measured for the whole host only"
-0.0500,sprout-1,sprout,0.5000,20000,,,0.1000,,,"network: shares the host's network; softirq, steal: counted by CPU, in the host's rows"
0.0500,host,host,0.0000,614400,0,0,,0.0000,0.1000,samples: 2 missed before this one; throttled: the host has no quota
0.0500,cpu0,host,0.0000,,,,,0.0000,0.1000,"memory, network, throttled: measured for the whole host only"
0.0500,sprout-1,sprout,0.2000,30000,,,0.3000,,,"network: shares the host's network; softirq, steal: counted by CPU, in the host's rows"
0.1500,host,host,0.0000,614400,0,0,,0.0000,0.0000,throttled: the host has no quota
0.1500,cpu0,host,0.0000,,,,,0.0000,0.0000,"memory, network, throttled: measured for the whole host only"
0.1500,sprout-1,sprout,0.0000,30000,,,0.0000,,,"network: shares the host's network; softirq, steal: counted by CPU, in the host's rows"
`
		if out.String() != want {
			t.Errorf("rows are\n%swant\n%s", out.String(), want)
		}
		if m.Missed() != 2 {
			t.Errorf("missed %d, want 2", m.Missed())
		}

		// The window's edges lie halfway between samples.
		use := m.Use(m.began.Add(50*time.Millisecond), m.began.Add(150*time.Millisecond))["sprout-1"]
		for _, c := range []struct {
			name string
			got  *float64
			want float64
		}{
			{"CPU", use.CPU, (25_000 + 10_000) / 100_000.},
			{"throttled", use.Throttled, (5_000 + 15_000) / 100_000.},
			{"memory", use.Memory, 20_000}, // it rises evenly
		} {
			if c.got == nil || math.Abs(*c.got/c.want-1) > 1e-9 {
				t.Errorf("%s is %v, want %v", c.name, value(c.got), c.want)
			}
		}
		if use.RxBytes != nil || use.TxBytes != nil || use.Missing["network"] == "" || len(use.Missing) != 1 {
			t.Errorf("missing is %v", use.Missing)
		}
		if use.Component != "sprout" || use.VCPUs != 0.5 || use.MemoryLimit != 1<<20 {
			t.Errorf("the component or its limits are lost: %+v", use)
		}
	})
}

func value(p *float64) any {
	if p == nil {
		return "missing"
	}
	return *p
}

// TestUseOutsideSamples asks for windows that have no samples, or have samples for a part only.
func TestUseOutsideSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		m, err := prepare(Config{}, []vitrine.Vantage{{Instance: "a-1", CgroupV2: f.cgroup}}, io.Discard, f.proc)
		if err == nil {
			t.Cleanup(m.close)
			f.set(0, 0, 2000, 0, 0, 0, 0)
		}
		// The files appear after the monitor tried to open them, so the metrics stay missing.
		m.sample()
		if use := m.Use(m.began, time.Now())["a-1"]; use.CPU != nil || !strings.Contains(use.Missing["cpu"], "cpu.stat") {
			t.Errorf("use is %+v", use)
		}

		m, err = prepare(Config{}, []vitrine.Vantage{{Instance: "a-1", CgroupV2: f.cgroup}}, io.Discard, f.proc)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.close)
		for i := range 11 { // 1 s at half a CPU
			f.set(i*50_000, 0, 2000, 0, 0, 0, 0)
			m.sample()
			time.Sleep(100 * time.Millisecond)
		}
		for _, c := range []struct {
			from, to time.Duration
			there    bool
		}{
			{0, time.Second, true},
			{-150 * time.Millisecond, time.Second, true},
			{200 * time.Millisecond, 210 * time.Millisecond, true},
			{-time.Second, time.Second, false},
			{500 * time.Millisecond, 2 * time.Second, false},
			{2 * time.Second, 3 * time.Second, false},
			{-2 * time.Second, -time.Second, false},
			{time.Second, 0, false},
		} {
			use := m.Use(m.began.Add(c.from), m.began.Add(c.to))["a-1"]
			switch {
			case c.there && (use.CPU == nil || math.Abs(*use.CPU-0.5) > 1e-9):
				t.Errorf("%v to %v: CPU is %v, want 0.5", c.from, c.to, value(use.CPU))
			case !c.there && (use.CPU != nil || use.Memory != nil || use.Missing["cpu"] == "" || use.Missing["memory"] == ""):
				t.Errorf("%v to %v: use is %+v, want no use and a reason", c.from, c.to, use)
			}
		}
	})
}

// TestUseAcrossAGap blocks the monitor for 2 s, during which the instance uses more than before.
// The means of counters stay right. The memory during the gap is unknown.
func TestUseAcrossAGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.set(0, 0, 11_000, 0, 0, 0, 0)
		m, err := prepare(Config{}, []vitrine.Vantage{{Instance: "a-1", CgroupV2: f.cgroup}}, io.Discard, f.proc)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.close)
		m.sample()
		used := 0
		pass := func(time100ms, micros, memory int) { // one sample after the given number of intervals
			time.Sleep(time.Duration(time100ms) * 100 * time.Millisecond)
			used += micros
			f.set(used, 0, memory, 0, 0, 0, 0)
			m.sample()
		}
		for range 10 { // 1 s at 0.5 CPUs
			pass(1, 50_000, 11_000)
		}
		pass(20, 2_000_000, 91_000) // 2 s at 1 CPU, not sampled
		for range 20 {              // 2 s at 0.5 CPUs
			pass(1, 50_000, 11_000)
		}
		const gapFrom, gapTo = time.Second, 3 * time.Second
		for _, c := range []struct {
			from, to    time.Duration
			cpu, memory float64 // 0: unknown
			longest     float64
			gaps        int
		}{
			{0, gapFrom, 0.5, 10_000, 0.1, 0},
			{0, 5 * time.Second, 3.5 / 5, 0, 2, 1},                // the counter covers the gap, memory has samples for 3 of 5 s
			{500 * time.Millisecond, 2 * time.Second, 0, 0, 1, 1}, // the window ends in the gap
			{2 * time.Second, 4 * time.Second, 0, 0, 1, 1},        // the window begins in the gap
			{gapFrom + 100*time.Millisecond, gapTo - 100*time.Millisecond, 0, 0, 1.8, 1},
			{gapTo - 100*time.Millisecond, 5 * time.Second, 0.5, 12_000, 0.1, 0}, // 0.1 of 2.1 s is in the gap; memory falls from 90,000 after it
		} {
			use := m.Use(m.began.Add(c.from), m.began.Add(c.to))["a-1"]
			for name, v := range map[string]struct {
				got  *float64
				want float64
			}{"cpu": {use.CPU, c.cpu}, "memory": {use.Memory, c.memory}} {
				switch {
				case v.want == 0 && (v.got != nil || use.Missing[name] == ""):
					t.Errorf("%v to %v: %s is %v, missing %q, want no value", c.from, c.to, name, value(v.got), use.Missing[name])
				case v.want > 0 && (v.got == nil || math.Abs(*v.got/v.want-1) > 1e-9):
					t.Errorf("%v to %v: %s is %v, want %v", c.from, c.to, name, value(v.got), v.want)
				}
			}
			if got := m.Sampling(m.began.Add(c.from), m.began.Add(c.to)); got.Gaps != c.gaps || math.Abs(got.Longest-c.longest) > 1e-9 {
				t.Errorf("%v to %v: sampling is %+v, want %d gaps, the longest of %g s", c.from, c.to, got, c.gaps, c.longest)
			}
		}
	})
}

// TestCgroupV2WithoutControllers checks a cgroup without controllers. Without the cpu controller,
// cpu.stat has no throttled_usec. Without the memory controller, there is no memory.current, and
// the memory comes from the process.
func TestCgroupV2WithoutControllers(t *testing.T) {
	f := newFake(t)
	f.set(0, 0, 0, 0, 0, 0, 0)
	f.write(f.cgroup, "cpu.stat", "usage_usec 5\n")
	if err := os.Remove(filepath.Join(f.cgroup, "memory.current")); err != nil {
		t.Fatal(err)
	}
	m := newManual(t, vitrine.Vantage{Instance: "a-1", PID: os.Getpid(), CgroupV2: f.cgroup})
	m.sample()
	m.sample()
	use, _ := lastUse(t, m)
	if use.CPU == nil || *use.CPU != 0 {
		t.Errorf("CPU is %v, want the cgroup's: 0", value(use.CPU))
	}
	if use.Memory == nil || *use.Memory < 1<<20 {
		t.Errorf("memory is %v, want this process's", value(use.Memory))
	}
	if use.Throttled != nil || !strings.Contains(use.Missing["throttled"], "throttled_usec") {
		t.Errorf("throttled is %v, missing %q", value(use.Throttled), use.Missing["throttled"])
	}
}

// TestGarbage checks that a file with garbage is missing from then on, and that other files still
// count.
func TestGarbage(t *testing.T) {
	f := newFake(t)
	f.set(0, 0, 5000, 0, 0, 0, 0)
	m := newManual(t, vitrine.Vantage{Instance: "a-1", CgroupV2: f.cgroup})
	m.sample()
	f.write(f.cgroup, "cpu.stat", "usage_usec x\nthrottled_usec 1\n")
	m.sample()
	f.set(0, 0, 5000, 0, 0, 0, 0)
	m.sample()
	use, _ := lastUse(t, m)
	if use.CPU != nil || use.Throttled != nil || use.Memory == nil || !strings.Contains(use.Missing["cpu"], "cpu.stat") {
		t.Errorf("use is %+v", use)
	}
}

// TestStartToStop runs a monitor with its own ticker.
func TestStartToStop(t *testing.T) {
	c := startChild(t, 0, nil)
	var out bytes.Buffer
	origin := time.Now().Add(time.Hour)
	m, err := Start(t.Context(), Config{Interval: time.Millisecond, Origin: origin}, []vitrine.Vantage{{Instance: `a,"1`, Component: "a", PID: c.pid()}}, &out)
	if err != nil {
		t.Fatal(err)
	}
	from := time.Now()
	c.spin(t, "spin")
	to := time.Now()
	if err := m.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := m.Stop(); err != nil {
		t.Errorf("the second Stop: %v", err)
	}
	use := m.Use(from, to)[`a,"1`]
	if use.CPU == nil || *use.CPU*to.Sub(from).Seconds() < spinFor.Seconds()*0.9 {
		t.Errorf("CPU is %v over %v, want %v CPU time", value(use.CPU), to.Sub(from), spinFor)
	}

	records, err := csv.NewReader(&out).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(records[0], ","); got != result.UsageHeader {
		t.Errorf("header %s", got)
	}
	last := map[string]float64{}
	for _, r := range records[1:] {
		at, err := strconv.ParseFloat(r[0], 64)
		before, again := last[r[1]]
		if err != nil || at > -3500 || again && at <= before {
			t.Fatalf("t_s is %q after %v: want it to rise and stay near -3600", r[0], before)
		}
		last[r[1]] = at
		for i, name := range map[int]string{3: "cpu", 4: "memory", 5: "network", 6: "network", 7: "throttled", 8: "softirq", 9: "steal"} {
			if empty, why := r[i] == "", strings.Contains(r[10], name); empty != why {
				t.Fatalf("%s is %q, and the column missing is %q", name, r[i], r[10])
			}
		}
	}
	for _, name := range []string{"host", "cpu0", `a,"1`} {
		if _, there := last[name]; !there {
			t.Errorf("no rows of %s", name)
		}
	}
}

func TestEndOfContextEndsSampling(t *testing.T) {
	fds := openFiles(t)
	ctx, cancel := context.WithCancel(t.Context())
	m, err := Start(ctx, Config{}, []vitrine.Vantage{{Instance: "a-1", PID: os.Getpid(), NetNS: "/proc/self/ns/net"}}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	<-m.done
	if err := m.Stop(); err != nil {
		t.Error(err)
	}
	if now := openFiles(t); !slices.Equal(fds, now) {
		t.Errorf("open files before %v, after %v", fds, now)
	}
}

// TestFullDisk checks that Stop reports a full disk, and that Use still has all samples.
func TestFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	m, err := Start(t.Context(), Config{Interval: time.Millisecond}, []vitrine.Vantage{{Instance: "a-1", PID: os.Getpid()}}, full)
	if err != nil {
		t.Fatal(err)
	}
	m.mu.Lock()
	m.flush() // as a full buffer would
	failed := time.Since(m.began)
	m.mu.Unlock()
	sampled := func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.instances[0].at > failed+10*m.interval
	}
	for !sampled() { // sampling continues after the failed write
		select {
		case <-t.Context().Done():
			t.Fatal("sampling stopped")
		default:
		}
	}
	if err := m.Stop(); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("Stop returned %v, want a full disk", err)
	}
	if use := m.Use(m.began.Add(failed), m.began.Add(failed+5*m.interval))["a-1"]; use.CPU == nil {
		t.Errorf("use after the failure is %+v", use)
	}
}

// TestMissedTicks checks that ticks during a long sample are counted.
func TestMissedTicks(t *testing.T) {
	m, err := Start(t.Context(), Config{Interval: time.Millisecond}, nil, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	m.mu.Lock()
	for held := time.Now(); time.Since(held) < 20*time.Millisecond; {
	}
	m.mu.Unlock()
	for m.Missed() == 0 {
		select {
		case <-t.Context().Done():
			t.Fatal("no tick was missed in 20")
		default:
		}
	}
	if err := m.Stop(); err != nil {
		t.Error(err)
	}
}

// TestSamplingOfABlockedMonitor blocks a running monitor for a moment.
func TestSamplingOfABlockedMonitor(t *testing.T) {
	m, err := Start(t.Context(), Config{Interval: 10 * time.Millisecond}, []vitrine.Vantage{{Instance: "a-1", PID: os.Getpid()}}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	const held = 600 * time.Millisecond
	from := time.Now()
	m.mu.Lock()
	for began := time.Now(); time.Since(began) < held; {
	}
	m.mu.Unlock()
	sampled := func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.instances[0].at > from.Add(held).Sub(m.began)
	}
	for !sampled() {
		select {
		case <-t.Context().Done():
			t.Fatal("sampling stopped")
		default:
		}
	}
	if err := m.Stop(); err != nil {
		t.Error(err)
	}
	if got := m.Sampling(from, time.Now()); got.Gaps == 0 || got.Longest < held.Seconds() {
		t.Errorf("sampling is %+v, want a gap of at least %v", got, held)
	}
}

func TestTickerCountsWhatPassed(t *testing.T) {
	ticker, err := newTicker(time.Millisecond, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer ticker.close()
	for began := time.Now(); time.Since(began) < 10*time.Millisecond; {
	}
	if missed, ok := ticker.next(); !ok || missed < 8 {
		t.Errorf("next: %d missed, %v; want all ticks of 10 ms except one", missed, ok)
	}
	ended := make(chan bool)
	go func() {
		for {
			if _, ok := ticker.next(); !ok {
				close(ended)
				return
			}
		}
	}()
	ticker.stop()
	<-ended
}

func TestBadInterval(t *testing.T) {
	if _, err := Start(t.Context(), Config{Interval: -1}, nil, io.Discard); err == nil {
		t.Error("Start accepts a negative interval")
	}
}

// TestUnreadableStat checks that CPU time of the host is missing for good if the first read of
// /proc/stat fails, because that read finds the CPUs.
func TestUnreadableStat(t *testing.T) {
	f := newFake(t)
	f.write(f.proc, "net/dev", "head\nhead\n")
	if err := os.Mkdir(filepath.Join(f.proc, "stat"), 0o700); err != nil { // it opens, but cannot be read
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	h := openHost(f.proc, buf)
	defer h.close()
	h.read(buf)
	if why := h.subjects[0].why[cpu]; h.stat != nil || len(h.subjects) != 1 || !strings.Contains(why, "is a directory") {
		t.Errorf("got %d subjects, the host without CPU time because %q, and the file %v", len(h.subjects), why, h.stat)
	}
}

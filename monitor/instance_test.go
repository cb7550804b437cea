package monitor

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/internal/cgroup"
)

// near reports whether got is within a share of want.
func near(got, want, share float64) bool { return got > want*(1-share) && got < want*(1+share) }

func TestCPUOfCgroup(t *testing.T) {
	c, v := startInCgroup(t, cgroup.Limits{})
	countsCPU(t, c, v)
}

// countsCPU compares the CPU time of a child's cgroup with the child's own figure.
func countsCPU(t *testing.T, c *child, v vitrine.Vantage) {
	t.Helper()
	m := newManual(t, v)
	m.sample()
	spent := c.spin(t, "spin")
	m.sample()
	use, window := lastUse(t, m)
	if use.CPU == nil {
		t.Fatalf("no CPU: %v", use.Missing)
	}
	if got := *use.CPU * window.Seconds(); !near(got, spent.Seconds(), 0.05) {
		t.Errorf("the cgroup counted %.3f CPU s, its process %.3f", got, spent.Seconds())
	}
}

// TestCPUOfCgroupV2 uses a real cgroup v2. Such a group counts CPU time without any controller, so
// this also works on hosts that use version 1.
func TestCPUOfCgroupV2(t *testing.T) {
	mounts, err := procfs.GetMounts()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(mounts, func(m *procfs.MountInfo) bool { return m.FSType == "cgroup2" })
	if i < 0 {
		t.Skip(&vitrine.Unsupported{What: "cgroup v2", Missing: "a mounted cgroup v2"})
	}
	folder, err := os.MkdirTemp(mounts[i].MountPoint, "vitrine-test-")
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS) {
		t.Skip(&vitrine.Unsupported{What: "cgroup v2", Missing: err.Error()})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(folder); err != nil {
			t.Error(err)
		}
	})
	c := startChild(t, 0, nil)
	if err := os.WriteFile(filepath.Join(folder, "cgroup.procs"), []byte(strconv.Itoa(c.pid())), 0); err != nil {
		t.Fatal(err)
	}
	countsCPU(t, c, vitrine.Vantage{Instance: "child-1", CgroupV2: folder})
}

// TestCPUOfProcesses checks that, without a cgroup, the monitor reads the CPU clocks of the
// process and its descendants.
func TestCPUOfProcesses(t *testing.T) {
	c := startChild(t, 0, nil)
	m := newManual(t, vitrine.Vantage{Instance: "child-1", PID: c.pid(), Missing: map[string]string{
		"cpu": "no cgroup here", "memory": "no cgroup here", "throttled": "no quota was set"}})
	p := m.instances[0].sources[0].(*processes)
	for _, how := range []string{"spin", "spin-in-child"} {
		m.sample()
		spent := c.spin(t, how)
		p.countdown = 0 // look for descendants now
		m.sample()
		use, window := lastUse(t, m)
		if use.CPU == nil || use.Memory == nil {
			t.Fatalf("%s: missing %v", how, use.Missing)
		}
		// A grandchild also uses CPU time for its own start.
		if got := *use.CPU * window.Seconds(); got < spent.Seconds()*0.95 || got > spent.Seconds()*1.05+0.1 {
			t.Errorf("%s: the monitor counted %.3f CPU s, the process %.3f", how, got, spent.Seconds())
		}
		if use.Throttled != nil || use.Missing["throttled"] != "no quota was set" {
			t.Errorf("throttled is %v, %q", use.Throttled, use.Missing["throttled"])
		}
	}
	if len(p.members) != 2 {
		t.Errorf("found %d processes, want child and grandchild", len(p.members))
	}
	before := m.instances[0].total[memory]
	grown := float64(c.number(t, "allocate 67108864"))
	m.sample()
	if got := m.instances[0].total[memory] - before; grown < 60<<20 || !near(got, grown, 0.05) {
		t.Errorf("the child grew by %.0f bytes, the monitor read %.0f", grown, got)
	}
}

// TestEndedDescendantStaysCounted checks that the CPU time of a descendant stays counted after it
// ends.
func TestEndedDescendantStaysCounted(t *testing.T) {
	c := startChild(t, 0, nil)
	m := newManual(t, vitrine.Vantage{Instance: "child-1", PID: c.pid()})
	c.spin(t, "spin-in-child")
	m.sample()
	p := m.instances[0].sources[0].(*processes)
	if len(p.members) != 2 {
		t.Fatalf("found %d processes, want 2", len(p.members))
	}
	before := m.instances[0].total[cpu]
	grandchild, err := os.FindProcess(p.members[1].pid)
	if err != nil {
		t.Fatal(err)
	}
	grandchild.Kill()
	// The child does not reap the grandchild, so the grandchild becomes a zombie and still has a
	// clock. Closing its file makes reads fail, as for a process that no longer exists.
	p.members[1].statm.close()
	p.members[1].statm.fd = -1
	m.sample()
	if got := m.instances[0].total[cpu]; got < before {
		t.Errorf("CPU time fell from %v to %v ns", before, got)
	}
	if len(p.members) != 1 {
		t.Errorf("%d members, want 1", len(p.members))
	}
}

func TestMemoryOfCgroup(t *testing.T) {
	c, v := startInCgroup(t, cgroup.Limits{})
	if v.CgroupMemory == "" && v.CgroupV2 == "" {
		t.Skip(&vitrine.Unsupported{What: "memory of a cgroup", Missing: "the memory controller"})
	}
	m := newManual(t, v)
	w := m.instances[0].sources[len(m.instances[0].sources)-1].(*workingSet)
	read := func() float64 {
		w.countdown = 0 // read the cache as well
		m.sample()
		return m.instances[0].total[memory]
	}
	const mebibyte = 1 << 20
	before := read()
	grown := float64(c.number(t, "allocate "+strconv.Itoa(64*mebibyte)))
	after := read()
	// The page tables and memory that the kernel charges in advance are extra.
	if got := after - before; grown < 60*mebibyte || !near(got, grown, 0.06) {
		t.Errorf("the child grew by %.0f bytes, the monitor read %.0f", grown, got)
	}
	c.do(t, "write "+filepath.Join(t.TempDir(), "file"))
	if grown := (read() - after) / mebibyte; grown > 8 {
		t.Errorf("32 MiB of reclaimable file cache count as %.1f MiB", grown)
	}
	m.sample()
	use, _ := lastUse(t, m)
	if use.Memory == nil || !near(*use.Memory, m.instances[0].total[memory], 0.05) {
		t.Errorf("mean memory %v at rest, the samples have %.0f", use.Memory, m.instances[0].total[memory])
	}
}

func TestThrottledOfCgroup(t *testing.T) {
	limits := cgroup.Limits{VCPUs: 0.25, Period: 20 * time.Millisecond}
	c, v := startInCgroup(t, limits)
	m := newManual(t, v)
	own := func() time.Duration { // reads the kernel's count without the monitor's code
		file, key, unit := filepath.Join(v.CgroupCPU, "cpu.stat"), "throttled_time ", time.Nanosecond
		if v.CgroupCPU == "" {
			file, key, unit = filepath.Join(v.CgroupV2, "cpu.stat"), "throttled_usec ", time.Microsecond
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(data), key)
		n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return time.Duration(n) * unit
	}
	m.sample()
	before := own()
	c.spin(t, "spin")
	m.sample()
	want := own() - before
	use, window := lastUse(t, m)
	if use.Throttled == nil {
		t.Fatalf("throttled: %v", use.Missing)
	}
	got := time.Duration(*use.Throttled * float64(window))
	if want <= 0 || (got-want).Abs() > limits.Period {
		t.Errorf("throttled for %v, the kernel counted %v", got, want)
	}
}

// TestDeathOfInstance kills an instance. Its samples must end with a reason, and the other
// instance's samples must continue.
func TestDeathOfInstance(t *testing.T) {
	dies, lives := startChild(t, 0, nil), startChild(t, 0, nil)
	m := newManual(t,
		vitrine.Vantage{Instance: "dies-1", PID: dies.pid()},
		vitrine.Vantage{Instance: "lives-1", PID: lives.pid()})
	m.sample()
	m.sample()
	dies.end()
	died := time.Since(m.began)
	for range 3 {
		m.sample()
	}
	rows := strings.Split(string(m.rows), "\n")
	last := rows[len(rows)-3 : len(rows)-1]
	if !strings.Contains(last[0], ",dies-1,,,,,,,,,") || !strings.Contains(last[0], "the main process has ended") {
		t.Errorf("a row of the dead instance is %s", last[0])
	}
	if strings.Contains(last[1], "ended") || strings.Contains(last[1], ",lives-1,,,") {
		t.Errorf("a row of the live instance is %s", last[1])
	}
	uses := m.Use(m.began.Add(died), m.began.Add(m.instances[0].at))
	if u := uses["dies-1"]; u.CPU != nil || u.Memory != nil || !strings.Contains(u.Missing["cpu"], "has ended") {
		t.Errorf("use of the dead instance is %+v", u)
	}
	if u := uses["lives-1"]; u.CPU == nil || u.Memory == nil {
		t.Errorf("use of the live instance is %+v", u)
	}
}

func TestDeadBeforeStart(t *testing.T) {
	c := startChild(t, 0, nil)
	c.end()
	m := newManual(t, vitrine.Vantage{Instance: "dead-1", PID: c.pid(), CgroupV2: filepath.Join(t.TempDir(), "gone")})
	m.sample()
	m.sample()
	use, _ := lastUse(t, m)
	for _, name := range []string{"cpu", "memory", "network", "throttled"} {
		if use.Missing[name] == "" {
			t.Errorf("no reason why %s is missing: %+v", name, use)
		}
	}
}

// TestRemovedCgroup removes a cgroup while the monitor watches it.
func TestRemovedCgroup(t *testing.T) {
	c, v := startInCgroup(t, cgroup.Limits{})
	v.PID = 0 // without a PID, only the files show the end
	m := newManual(t, v)
	m.sample()
	m.sample()
	c.end()
	host, err := cgroup.Detect()
	skipUnsupported(t, err)
	folder := v.CgroupV2 + v.CgroupCPUAcct // one of them is empty
	run := filepath.Base(filepath.Dir(folder))
	if err := host.RemoveRun(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	m.sample()
	m.sample()
	use, _ := lastUse(t, m)
	if use.CPU != nil || !strings.Contains(use.Missing["cpu"], "removed") {
		t.Errorf("CPU of a removed cgroup is %v, missing %q", use.CPU, use.Missing["cpu"])
	}
}

// TestKilledProcesses checks that the monitor counts what the kernel killed for lack of memory while it
// watched, with both versions of cgroups.
func TestKilledProcesses(t *testing.T) {
	v2, v1 := t.TempDir(), t.TempDir()
	write := func(kills int) {
		t.Helper()
		events := fmt.Sprintf("low 0\nhigh 0\nmax 7\noom 5\noom_kill %d\noom_group_kill 0\n", kills)
		control := fmt.Sprintf("oom_kill_disable 0\nunder_oom 0\noom_kill %d\n", kills)
		err := errors.Join(os.WriteFile(filepath.Join(v2, "memory.events"), []byte(events), 0o600),
			os.WriteFile(filepath.Join(v1, "memory.oom_control"), []byte(control), 0o600))
		if err != nil {
			t.Fatal(err)
		}
	}
	write(2)
	vantages := []vitrine.Vantage{{Instance: "sprout-1", CgroupV2: v2}, {Instance: "bono-1", CgroupMemory: v1}, {Instance: "homer-1"}}
	m, err := Start(t.Context(), Config{}, vantages, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	write(3)
	if err := m.Stop(); err != nil {
		t.Fatal(err)
	}
	if got, want := m.Killed(), map[string]int{"sprout-1": 1, "bono-1": 1}; !maps.Equal(got, want) {
		t.Errorf("got %v killed processes, want %v", got, want)
	}
}

func TestSampleAllocatesNothing(t *testing.T) {
	_, v := startInCgroup(t, cgroup.Limits{})
	v.NetNS = "/proc/thread-self/ns/net"
	m := newManual(t, v)
	var written count
	m.out = &written
	m.sample()
	if n := testing.AllocsPerRun(2000, m.sample); n != 0 {
		t.Errorf("%v allocations a sample", n)
	}
	if written < flushAt {
		t.Errorf("the samples wrote only %d bytes of rows", written)
	}
}

// count counts the bytes written to it.
type count int

func (c *count) Write(b []byte) (int, error) { *c += count(len(b)); return len(b), nil }

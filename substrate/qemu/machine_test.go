package qemu

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/fabric/fabrictest"
	"vitrine/image/debian"
	"vitrine/internal/hosttest"
	"vitrine/internal/runstate"
	"vitrine/substrate"
	"vitrine/substrate/qemu/guest"
	"vitrine/substrate/qemu/machine"
	"vitrine/substrate/substratetest"
)

// newSubstrate makes a substrate with its own run. After the test, it closes the substrate and
// checks that nothing is left behind.
func newSubstrate(t *testing.T, change func(*Config)) (*Substrate, *runstate.Run) {
	t.Helper()
	run := fabrictest.NewRun(t, filepath.Join(t.TempDir(), "runs"))
	c := config(t, run)
	if change != nil {
		change(&c)
	}
	s, err := New(c)
	hosttest.Need(t, err)
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
		if left, err := substratetest.Left(run.ID); err != nil || len(left) > 0 {
			t.Errorf("resources left: %q, error %v", left, err)
		}
	})
	return s, run
}

// smallSpec returns the Spec of an instance with the least memory possible.
func smallSpec(t *testing.T, run *runstate.Run, name string) substrate.Spec {
	t.Helper()
	component, _, _ := strings.Cut(name, "-")
	return substrate.Spec{Run: run.ID, Name: name, Component: component, Memory: MinMemory, Dir: t.TempDir()}
}

func create(t *testing.T, s *Substrate, spec substrate.Spec) *Instance {
	t.Helper()
	in, err := s.Create(t.Context(), spec)
	hosttest.Need(t, err)
	return in.(*Instance)
}

// output runs a shell script in the machine and returns its standard output.
func output(t *testing.T, in *Instance, script string, args ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "output")
	err := in.Run(t.Context(), vitrine.Command{Args: append([]string{"/bin/sh", "-euc", script, "sh"}, args...), Stdout: file})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// patience bounds every wait for a machine.
const patience = 5 * time.Minute

// TestQemuMachine checks one machine from the host and from inside. The machine must match its
// Spec, the guest's readings must be in a file of their own, and the guest must switch the machine
// off.
func TestQemuMachine(t *testing.T) {
	s, run := newSubstrate(t, nil)
	spec := smallSpec(t, run, "sprout-1")
	spec.VCPUs, spec.CPUs = 1.5, allowed(t)
	in := create(t, s, spec)
	printed := output(t, in, `nproc; hostname; cat /etc/hostname; sed -n 's/^MemTotal: *//p' /proc/meminfo; stat -fc %T /sys/fs/cgroup; cat /sys/fs/cgroup/guest/memory.max`)
	words := strings.Fields(printed)
	if len(words) != 7 || words[0] != "2" || words[1] != "sprout-1" || words[2] != "sprout-1" || words[5] != "cgroup2fs" {
		t.Fatalf("the guest reports %q", printed)
	}
	if kib, err := strconv.ParseInt(words[3], 10, 64); err != nil || kib<<10 > spec.Memory || kib<<10 < spec.Memory/2 {
		t.Errorf("the guest has %s KiB of memory, error %v, for a machine of %d bytes", words[3], err, spec.Memory)
	}
	if most := number(t, words[6]); most < 16<<20 || most > float64(spec.Memory)*0.9 {
		t.Errorf("memory limit of commands: got %v of %d bytes", most, spec.Memory)
	}
	t.Logf("the guest reports %q", printed)
	t.Run("Program", func(t *testing.T) { agentRunsCommands(t, in) })
	t.Run("Quota", func(t *testing.T) { quotaIsOfAllOfQEMU(t, in) })
	t.Run("Binding", func(t *testing.T) { processorsAreBound(t, in, spec.CPUs) })
	t.Run("Readings", func(t *testing.T) { guestReadingsAreSeparate(t, in) })
	t.Run("Off", func(t *testing.T) {
		g := in.guest
		if err := in.Remove(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := g.machine.Err(); err != nil {
			t.Errorf("QEMU ended with %v", err)
		}
		console, err := os.ReadFile(filepath.Join(spec.Dir, consoleFile))
		if err != nil || !strings.Contains(string(console), "Power down") {
			t.Errorf("the guest kernel did not power off the machine: %v\n%s", err, console)
		}
	})
}

// agentRunsCommands checks that a command with the agent's path runs the program that the guest
// already has.
func agentRunsCommands(t *testing.T, in *Instance) {
	agent := in.substrate.config.Agent[0]
	err := in.Run(t.Context(), vitrine.Command{Args: []string{agent, guest.VerbInit()}})
	if err == nil || !strings.Contains(err.Error(), "first process") {
		t.Errorf("agent %s as a command: got error %v", agent, err)
	}
	if got := output(t, in, `readlink "$1"`, agent); got != "/run/vitrine/"+agentName {
		t.Errorf("path of the agent: got %q", got)
	}
}

// allowed returns two CPUs that this process may run on.
func allowed(t *testing.T) []int {
	t.Helper()
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	var cpus []int
	for i := 0; len(cpus) < 2 && i < len(set)*64; i++ {
		if set.IsSet(i) {
			cpus = append(cpus, i)
		}
	}
	if len(cpus) < 2 {
		t.Skip(&vitrine.Unsupported{What: "binding two processors", Missing: "a second CPU"})
	}
	return cpus
}

// quotaIsOfAllOfQEMU checks that the cgroup with the quota holds QEMU's process, and so all its
// threads.
func quotaIsOfAllOfQEMU(t *testing.T, in *Instance) {
	v := in.Vantage()
	var members, quota, period string
	if v.CgroupV2 != "" {
		members = read(t, filepath.Join(v.CgroupV2, "cgroup.procs"))
		quota, period, _ = strings.Cut(read(t, filepath.Join(v.CgroupV2, "cpu.max")), " ")
	} else {
		members = read(t, filepath.Join(v.CgroupCPU, "cgroup.procs"))
		quota, period = read(t, filepath.Join(v.CgroupCPU, "cpu.cfs_quota_us")), read(t, filepath.Join(v.CgroupCPU, "cpu.cfs_period_us"))
	}
	if !strings.Contains("\n"+members+"\n", fmt.Sprintf("\n%d\n", v.PID)) {
		t.Errorf("QEMU with pid %d is not among the processes %q of the cgroup", v.PID, members)
	}
	if q, p := number(t, quota), number(t, period); q/p != in.spec.VCPUs {
		t.Errorf("got a quota of %v per %v microseconds, want %v CPUs", q, p, in.spec.VCPUs)
	}
}

// processorsAreBound checks that each virtual processor is bound to its own CPU.
func processorsAreBound(t *testing.T, in *Instance, cpus []int) {
	var threads []struct {
		Index  int `json:"cpu-index"`
		Thread int `json:"thread-id"`
	}
	if err := in.guest.machine.Monitor().Run(t.Context(), "query-cpus-fast", nil, &threads); err != nil || len(threads) != 2 {
		t.Fatalf("got virtual CPUs %v, error %v", threads, err)
	}
	for _, v := range threads {
		status := read(t, fmt.Sprintf("/proc/%d/task/%d/status", in.Vantage().PID, v.Thread))
		if want := fmt.Sprintf("Cpus_allowed_list:\t%d\n", cpus[v.Index]); !strings.Contains(status, want) {
			t.Errorf("virtual CPU %d does not have %q", v.Index, want)
		}
	}
}

// guestReadingsAreSeparate checks that the guest's own readings are in a separate file and
// plausible.
func guestReadingsAreSeparate(t *testing.T, in *Instance) {
	v := in.Vantage()
	if v.Guest != filepath.Join(in.spec.Dir, useFile) {
		t.Fatalf("file of the guest readings: got %q", v.Guest)
	}
	var rows []string
	hosttest.Until(t, patience, "two readings", func() bool {
		rows = strings.Split(read(t, v.Guest), "\n")
		return len(rows) >= 3
	})
	if rows[0]+"\n" != readingsHeader {
		t.Errorf("got header %q", rows[0])
	}
	first, second := strings.Split(rows[1], ","), strings.Split(rows[2], ",")
	for i, of := range []string{"time", "CPU"} {
		if number(t, first[i]) > number(t, second[i]) || number(t, first[i]) <= 0 {
			t.Errorf("%s went from %s to %s, want it positive and not falling", of, first[i], second[i])
		}
	}
	if memory := number(t, second[3]); memory < 8<<20 || memory > float64(in.spec.Memory) {
		t.Errorf("got %v bytes in use of %d", memory, in.spec.Memory)
	}
}

// TestQemuMachineThatDoesNotAnswer checks that Remove ends a machine whose agent is stopped.
func TestQemuMachineThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	s, run := newSubstrate(t, nil)
	in := create(t, s, smallSpec(t, run, "sprout-1"))
	p, err := in.Start(t.Context(), vitrine.Command{Args: []string{"/bin/sh", "-c", "kill -STOP $PPID; sleep 3600"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	for ctx.Err() == nil { // until the agent has stopped
		err = in.guest.agent.ask(ctx, guest.Request{Op: guest.OpHas, Path: "/"})
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	}
	if err := in.Remove(t.Context()); err != nil {
		t.Errorf("Remove: %v", err)
	}
	select {
	case <-p.Done():
	default:
		t.Error("the machine stopped, but its command did not end")
	}
}

// TestQemuMachineIsStartedAgain checks a machine that is started again. It must run the agent, keep
// what was written to its disk, and have the instance's folder as it now is on the host.
func TestQemuMachineIsStartedAgain(t *testing.T) {
	t.Parallel()
	s, run := newSubstrate(t, nil)
	spec := smallSpec(t, run, "sprout-1")
	in := create(t, s, spec)
	old := filepath.Join(spec.Dir, "old")
	if err := os.WriteFile(old, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	agentRunsCommands(t, in)
	output(t, in, `cd "$1"; test -e old; touch mine /root/kept; sync`, spec.Dir)
	if err := errors.Join(in.guest.machine.Stop(t.Context()), os.Remove(old)); err != nil {
		t.Fatal(err)
	}
	<-in.guest.agent.ended
	agentRunsCommands(t, in)
	if got := output(t, in, `ls "$1"; ls /root`, spec.Dir); got != "kept" {
		t.Errorf("the restarted machine has %q, want kept", got)
	}
}

// TestQemuAgentIsStatic checks that an agent that needs shared libraries is refused, because a
// guest may have none.
func TestQemuAgentIsStatic(t *testing.T) {
	s, run := newSubstrate(t, func(c *Config) { c.Agent = []string{"/bin/sh"} })
	if _, err := s.Create(t.Context(), smallSpec(t, run, "sprout-1")); !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), "CGO_ENABLED=0") {
		t.Errorf("agent that needs libraries: got error %v, want bad input", err)
	}
}

// TestQemuAccelerator checks that the requested accelerator is used or refused, and that auto finds
// one that boots.
func TestQemuAccelerator(t *testing.T) {
	found := accelerator(t, "")
	if found != machine.KVM && found != machine.TCG {
		t.Errorf("got accelerator %q", found)
	}
	if got := accelerator(t, machine.TCG); got != machine.TCG {
		t.Errorf("asked for accelerator %s, got %s", machine.TCG, got)
	}
	s, _ := newSubstrate(t, func(c *Config) { c.Accelerator = machine.KVM })
	got, err := s.Accelerator(t.Context())
	if found == machine.KVM && got != found || found != machine.KVM && !vitrine.IsUnsupported(err) {
		t.Errorf("asked for %s on a host with %s: got %q, error %v", machine.KVM, found, got, err)
	}
	c := config(t, nil)
	c.Accelerator = "xen"
	if _, err := New(c); !vitrine.IsBadInput(err) {
		t.Errorf("accelerator xen: got error %v, want bad input", err)
	}
}

func accelerator(t *testing.T, asked string) string {
	t.Helper()
	s, _ := newSubstrate(t, func(c *Config) { c.Accelerator = asked })
	found, err := s.Accelerator(t.Context())
	hosttest.Need(t, err)
	return found
}

// TestQemuImage starts a machine from a disk like a distribution's cloud image. The disk has a
// partition table, and no modules for the machine's kernel. What the machine writes must not change
// the image.
func TestQemuImage(t *testing.T) {
	t.Parallel()
	s, run := newSubstrate(t, func(c *Config) { c.Folder = t.TempDir(); c.Image = "cloud.qcow2" })
	path := filepath.Join(s.config.Folder, s.config.Image)
	cloudImage(t, s, path)
	before := digest(t, path)
	spec := smallSpec(t, run, "sprout-1")
	in := create(t, s, spec)
	if got := output(t, in, `cat /etc/published; echo mine > /etc/published; sync; cat /etc/published; ls /sys/class/net; ls -A /lib/modules`); got != "by a distribution\nmine\nlo" {
		t.Errorf("the machine printed %q", got)
	}
	if err := in.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(spec.Dir, machineDir)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the machine's disk was not removed: %v", err)
	}
	if !bytes.Equal(before, digest(t, path)) {
		t.Error("the image was changed")
	}
}

func cloudImage(t *testing.T, s *Substrate, path string) {
	t.Helper()
	base, err := debian.Builder{Cache: s.config.Cache, Environ: s.config.Environ}.Base(t.Context(), s.config.Debian)
	hosttest.Need(t, err)
	dir := t.TempDir()
	tree, raw := filepath.Join(dir, "tree"), filepath.Join(dir, "raw")
	script := `mkdir "$2"
tar --extract --numeric-owner --file "$1" --directory "$2"
rm -r "$2"/lib/modules/*
echo by a distribution > "$2"/etc/published
truncate --size 1G "$3"
mkfs.ext4 -q -F -d "$2" -E offset="$4" "$3" "$5"M`
	const begins, mebibytes, sector = 4 << 20, 900, 512
	err = run(t.Context(), "/bin/sh", "-euc", script, "sh", base.Tree, tree, raw, strconv.Itoa(begins), strconv.Itoa(mebibytes))
	if err != nil {
		t.Fatal(err)
	}
	// A PC's partition table (MBR) has four entries of 16 bytes from byte 446. The second
	// one is a Linux partition (type 0x83).
	table := make([]byte, sector)
	entry := table[446+16:]
	entry[4] = 0x83
	binary.LittleEndian.PutUint32(entry[8:], begins/sector)
	binary.LittleEndian.PutUint32(entry[12:], mebibytes<<20/sector)
	table[510], table[511] = 0x55, 0xaa
	f, err := os.OpenFile(raw, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(table)
	if err := errors.Join(err, f.Close(), run(t.Context(), "qemu-img", "convert", "-q", "-f", "raw", "-O", "qcow2", raw, path)); err != nil {
		t.Fatal(err)
	}
}

func digest(t *testing.T, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		t.Fatal(err)
	}
	return sum.Sum(nil)
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func number(t *testing.T, text string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

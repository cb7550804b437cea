package cpu

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"vitrine/internal/bpftest"
	"vitrine/internal/hosttest"
	"vitrine/internal/thread"
)

// TestMain lets the test binary act as the program that the tests measure.
func TestMain(m *testing.M) {
	switch os.Getenv("CPU_TEST_WORK") {
	case "user":
		work(func() { lap() })
	case "kernel":
		zero, err := os.Open("/dev/zero")
		if err != nil {
			panic(err)
		}
		b := make([]byte, 1<<20)
		// The raw call avoids the race detector, which would walk through the buffer in user mode.
		work(func() {
			_, _, _ = unix.Syscall(unix.SYS_READ, zero.Fd(), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
		})
	case "soak":
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			_, _ = io.ReadAll(os.Stdin)
			cancel()
		}()
		if err := RunSoak(ctx, []string{"--file", os.Getenv("CPU_TEST_FILE")}, io.Discard, os.Stderr); err != nil {
			panic(err)
		}
	case "meter":
		m, err := OpenMeter()
		if err != nil {
			panic(err)
		}
		var unseen int64
		if err := errors.Join(m.objects.Variables["unseen"].Get(&unseen), m.Close()); err != nil {
			panic(err)
		}
		_, _ = os.Stdout.WriteString(strconv.FormatInt(unseen, 10))
	default:
		os.Exit(m.Run())
	}
}

// work calls what until the process has used CPU_TEST_NS of CPU time, in ns. It prints the CPU
// time of the process.
func work(what func()) {
	runtime.LockOSThread()
	want, _ := strconv.ParseInt(os.Getenv("CPU_TEST_NS"), 10, 64)
	var used unix.Timespec
	for used.Nano() < want {
		for range 100 {
			what()
		}
		_ = unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &used)
	}
	_, _ = os.Stdout.WriteString(strconv.FormatInt(used.Nano(), 10))
}

// program returns a command that runs this binary with more environment variables.
func program(environ ...string) *exec.Cmd {
	c := exec.Command(os.Args[0])
	c.Env = append(append(os.Environ(), environ...), "GODEBUG=asyncpreemptoff=1")
	return c
}

// startOnLast starts a program that may run only on the last CPU.
func startOnLast(t *testing.T, c *exec.Cmd) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	back, err := thread.Keep(runtime.NumCPU() - 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Start(), back()); err != nil {
		t.Fatal(err)
	}
}

// spend runs work of a kind on the last CPU for at least ns of CPU time. It returns the CPU time
// that the process used, in ns.
func spend(t *testing.T, kind string, ns int64) float64 {
	t.Helper()
	c := program("CPU_TEST_WORK="+kind, "CPU_TEST_NS="+strconv.FormatInt(ns, 10))
	var out strings.Builder
	c.Stdout = &out
	startOnLast(t, c)
	if err := c.Wait(); err != nil {
		t.Fatal(err)
	}
	used, err := strconv.ParseFloat(out.String(), 64)
	if err != nil {
		t.Fatal(err)
	}
	return used
}

// openMeter opens a Meter for the duration of the test. It skips the test if the kernel lacks
// support.
func openMeter(t *testing.T) *Meter {
	t.Helper()
	m, err := OpenMeter()
	hosttest.Need(t, err)
	t.Cleanup(func() { _ = m.Close() })
	return m
}

// TestMeterFindsUsedTime checks that the Meter finds a process's time in user mode and in
// the kernel. Other work on the host can only add to it.
func TestMeterFindsUsedTime(t *testing.T) {
	m := openMeter(t)
	last := runtime.NumCPU() - 1
	for _, kind := range []string{"user", "kernel"} {
		before, began, err := m.Read()
		if err != nil {
			t.Fatal(err)
		}
		used := spend(t, kind, 300e6)
		after, ended, err := m.Read()
		if err != nil {
			t.Fatal(err)
		}
		got := after[last].Sub(before[last])
		found := map[string]int64{"user": got.User, "kernel": got.Kernel}[kind]
		// The start of the program is in user mode. It takes longer under the race detector.
		if float64(found) < used*0.75 {
			t.Errorf("%s: used %.0f ns, found %d: %+v", kind, used, found, got)
		}
		wall := ended.Sub(began).Nanoseconds()
		if all := got.Busy() + got.Own + got.Idle; float64(all) < float64(wall)*0.98 || float64(all) > float64(wall)*1.02 {
			t.Errorf("%s: the Meter counts %[3]d of %[2]d ns: %+[4]v", kind, wall, all, got)
		}
	}
}

// TestMeterCountsInterruptsBeforeTheirEvents checks that the Meter charges the time
// before an interrupt's first event to the interrupt.
func TestMeterCountsInterruptsBeforeTheirEvents(t *testing.T) {
	m := openMeter(t)
	var unseen int64
	if err := m.objects.Variables["unseen"].Get(&unseen); err != nil {
		t.Fatal(err)
	}
	if runtime.GOARCH != "amd64" && unseen == 0 {
		t.Skip("this kernel reports no events for timers")
	}
	if unseen == 0 {
		t.Error("the time of interrupts before their events is 0")
	}
	unseen = (30 * time.Microsecond).Nanoseconds() // far more than a timer's handler takes
	if err := m.objects.Variables["unseen"].Set(unseen); err != nil {
		t.Fatal(err)
	}
	interrupted := func() (sum int64) {
		readings, _, err := m.Read()
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range readings {
			sum += r.Interrupt
		}
		return sum
	}
	before := interrupted()
	if err := m.beInterrupted(); err != nil {
		t.Fatal(err)
	}
	if took := interrupted() - before; took < probes*unseen*2/3 {
		t.Errorf("%d interrupts used %d ns", probes, took)
	}
}

// TestMeterInAPIDNamespace checks that a Meter also measures the time before the events of interrupts
// where the numbers of threads are not those of the kernel, as in a container.
func TestMeterInAPIDNamespace(t *testing.T) {
	m := openMeter(t)
	var unseen int64
	if err := errors.Join(m.objects.Variables["unseen"].Get(&unseen), m.Close()); err != nil {
		t.Fatal(err)
	}
	if unseen == 0 {
		t.Skip("this kernel reports no events for timers")
	}
	c := program("CPU_TEST_WORK=meter")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID}
	c.Stderr = os.Stderr
	if out, err := c.Output(); err != nil || string(out) == "0" {
		t.Errorf("got %q ns, error %v, want a time", out, err)
	}
}

// TestSoakerMissesTimeOfOthers checks that the soaker misses at least 95% of the CPU time that
// another process uses. The speed of a virtual CPU may change after the soaker has measured it, so
// the test has three attempts.
func TestSoakerMissesTimeOfOthers(t *testing.T) {
	for attempt := range 3 {
		used, missed := soakBeside(t, 400e6)
		if missed >= used*0.95 {
			return
		}
		t.Logf("attempt %d: other processes used %.0f ns, the soaker missed %.0f", attempt+1, used, missed)
	}
	t.Error("the soaker does not miss the CPU time of others")
}

// soakBeside runs a soaker and a process that uses CPU time on the same CPU. It returns how much
// the process used and the soaker missed, in ns.
func soakBeside(t *testing.T, spent int64) (used, missed float64) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "soaked")
	c := program("CPU_TEST_WORK=soak", "CPU_TEST_FILE="+file)
	stop, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	ready, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	startOnLast(t, c)
	if _, err := ready.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	before, err := ReadSoaked(file)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	used = spend(t, "user", spent)
	wall := time.Since(began)
	after, err := ReadSoaked(file)
	if err != nil {
		t.Fatal(err)
	}
	if after.Laps == before.Laps {
		t.Log("the CPU was never free during the test")
	}
	if err := errors.Join(stop.Close(), c.Wait()); err != nil {
		t.Error(err)
	}
	return used, float64((wall - after.Spent(before)).Nanoseconds())
}

func TestTheSplitIsGivenOnlyWhenBothAgree(t *testing.T) {
	agree := Judge(1000, 10, &Split{User: 300, Kernel: 500, Interrupt: 160}, "")
	if agree.Split == nil || agree.Why != "" {
		t.Errorf("two counts 4%% apart: got %+v", agree)
	}
	apart := Judge(1000, 10, &Split{User: 300, Kernel: 500, Interrupt: 140}, "")
	if apart.Split != nil || apart.Why == "" || apart.Counted != 940 {
		t.Errorf("two counts 6%% apart: got %+v", apart)
	}
	if none := Judge(1000, 10, nil, "no BPF"); none.Split != nil || none.Why != "no BPF" {
		t.Errorf("judge without BPF: got %+v", none)
	}
}

// TestObjectIsOfTheSource checks that the object was compiled again after the C file changed.
func TestObjectIsOfTheSource(t *testing.T) {
	object, err := loadAccount()
	if err != nil {
		t.Fatal(err)
	}
	bpftest.CompiledFrom(t, object, "bpf/account.c")
}

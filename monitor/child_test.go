package monitor

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/internal/cgroup"
	"vitrine/internal/hosttest"
	"vitrine/internal/runstate"
)

const childVariable = "VITRINE_MONITOR_TEST_CHILD"

// TestMain runs this program as the watched process if childVariable is set.
func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		if err := beChild(); err != nil {
			fmt.Println("error:", err)
		}
		return
	}
	os.Exit(m.Run())
}

// spinFor is the CPU time that a child uses for one spin.
const spinFor = 300 * time.Millisecond

// beChild reads commands from standard input, one per line, and answers each with a line.
func beChild() error {
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() {
		name, argument, _ := strings.Cut(commands.Text(), " ")
		switch name {
		case "ready":
			fmt.Println("yes")
		case "spin": // answers the CPU time spent, in ns
			before := spent()
			for spent()-before < spinFor {
			}
			fmt.Println(int64(spent() - before))
		case "spin-in-child": // the grandchild keeps running
			grandchild := exec.Command("/proc/self/exe")
			in, err := grandchild.StdinPipe()
			if err != nil {
				return err
			}
			grandchild.Stdout = os.Stdout
			if err := grandchild.Start(); err != nil {
				return err
			}
			if _, err := io.WriteString(in, "spin\n"); err != nil {
				return err
			}
		case "allocate": // argument: bytes; answers the growth of its own memory
			n, err := strconv.Atoi(argument)
			if err != nil {
				return err
			}
			before := resident()
			memory, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
			if err != nil {
				return err
			}
			for i := range memory {
				memory[i] = 1
			}
			fmt.Println(resident() - before)
		case "write": // argument: file; writes 32 MiB that stay in the file cache
			file, err := os.Create(argument)
			if err != nil {
				return err
			}
			block := make([]byte, 1<<16)
			for range 32 << 20 / len(block) {
				if _, err := file.Write(block); err != nil {
					return err
				}
			}
			fmt.Println("written")
		}
	}
	return nil
}

func spent() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// resident returns this process's resident memory in bytes.
func resident() int {
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		panic(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(data))[1])
	if err != nil {
		panic(err)
	}
	return pages * os.Getpagesize()
}

type child struct {
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Scanner
}

// startChild starts a child. It uses start if start is not nil.
func startChild(t *testing.T, flags uintptr, start func(*exec.Cmd) error) *child {
	t.Helper()
	c := &child{command: exec.Command("/proc/self/exe")}
	c.command.Env = append(os.Environ(), childVariable+"=yes")
	c.command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
	var err error
	if c.in, err = c.command.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.out = bufio.NewScanner(out)
	if start == nil {
		start = (*exec.Cmd).Start
	}
	if err := start(c.command); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.end)
	c.do(t, "ready") // waits until the child has started, because the start uses CPU time
	return c
}

func (c *child) pid() int { return c.command.Process.Pid }

// end kills the child. It may be called more than once.
func (c *child) end() {
	c.command.Process.Kill()
	c.command.Wait()
}

// do sends the child a command and returns its answer.
func (c *child) do(t *testing.T, what string) string {
	t.Helper()
	if _, err := io.WriteString(c.in, what+"\n"); err != nil {
		t.Fatal(err)
	}
	if !c.out.Scan() {
		t.Fatalf("%s: the child ended: %v", what, c.out.Err())
	}
	answer := c.out.Text()
	if strings.HasPrefix(answer, "error: ") {
		t.Fatalf("%s: %s", what, answer)
	}
	return answer
}

// spin makes the child use CPU time and returns the child's own measurement of it.
func (c *child) spin(t *testing.T, how string) time.Duration {
	t.Helper()
	return time.Duration(c.number(t, how))
}

func (c *child) number(t *testing.T, what string) int {
	t.Helper()
	n, err := strconv.Atoi(c.do(t, what))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// startInCgroup starts a child in its own cgroup.
func startInCgroup(t *testing.T, limits cgroup.Limits) (*child, vitrine.Vantage) {
	t.Helper()
	host, err := cgroup.Detect()
	skipUnsupported(t, err)
	run, err := runstate.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := host.RemoveRun(context.Background(), run.ID); err != nil {
			t.Error(err)
		}
		run.Close()
	})
	group, err := host.Create(run.ID, "child-1", limits)
	skipUnsupported(t, err)
	leaf, err := group.Leaf("main")
	if err != nil {
		t.Fatal(err)
	}
	c := startChild(t, 0, func(command *exec.Cmd) error {
		done := make(chan error)
		go func() {
			runtime.LockOSThread() // never unlocked; see Leaf.Start
			done <- leaf.Start(command)
		}()
		return <-done
	})
	v := vitrine.Vantage{Instance: "child-1", Component: "child", PID: c.pid(), VCPUs: limits.VCPUs}
	group.Vantage(&v)
	return c, v
}

func skipUnsupported(t *testing.T, err error) {
	t.Helper()
	hosttest.Need(t, err)
}

// newManual returns a monitor that samples only when the test calls sample, and writes a row for each
// sample. It has no gaps.
func newManual(t *testing.T, vantages ...vitrine.Vantage) *Monitor {
	t.Helper()
	m, err := prepare(Config{}, vantages, &bytes.Buffer{}, "/proc")
	if err != nil {
		t.Fatal(err)
	}
	m.interval, m.longest = 1, time.Hour
	t.Cleanup(m.close)
	return m
}

// lastUse returns the use of the only instance between the last two samples, and the time between
// these samples.
func lastUse(t *testing.T, m *Monitor) (vitrine.Use, time.Duration) {
	t.Helper()
	samples := m.instances[0].use.samples
	if len(samples) < 2 {
		t.Fatalf("%d samples", len(samples))
	}
	from, to := samples[len(samples)-2].at, samples[len(samples)-1].at
	return m.Use(m.began.Add(from), m.began.Add(to))[m.instances[0].use.vantage.Instance], to - from
}

// openFiles lists the open files of this process. It omits those of Go's runtime and of the test
// itself.
func openFiles(t *testing.T) (names []string) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && !strings.Contains(name, "/fd") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

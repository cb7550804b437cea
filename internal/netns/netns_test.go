package netns

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"vitrine"
	"vitrine/internal/hosttest"
)

// create makes a namespace for a test.
func create(t *testing.T, name string) string {
	t.Helper()
	path, err := Create(name)
	hosttest.Need(t, err)
	t.Cleanup(func() {
		for range 2 {
			if err := Delete(name); err != nil {
				t.Error(err)
			}
		}
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s exists after Delete", path)
		}
	})
	return path
}

func name(t *testing.T, suffix string) string {
	return fmt.Sprintf("vt-test%d-%s", os.Getpid(), suffix)
}

func TestNetnsCreated(t *testing.T) {
	path := create(t, name(t, "a"))
	if _, err := Create(name(t, "a")); err == nil {
		t.Error("created two namespaces with the same name")
	}
	names, err := List(name(t, ""))
	if err != nil || !slices.Equal(names, []string{name(t, "a")}) {
		t.Errorf("List: %q, %v", names, err)
	}
	if out, err := exec.Command("ip", "netns", "exec", name(t, "a"), "ip", "-br", "link").CombinedOutput(); errors.Is(err, exec.ErrNotFound) {
		t.Log("iproute2 is not installed")
	} else if err != nil || strings.Count(string(out), "\n") != 1 || !strings.HasPrefix(string(out), "lo") {
		t.Errorf("ip netns exec sees %q, %v; want only lo", out, err)
	}
	// A connection over lo is possible only if lo is up.
	if err := Do(path, dialSelf); err != nil {
		t.Error(err)
	}
}

func dialSelf() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return err
	}
	return c.Close()
}

func TestNetnsDoComesBack(t *testing.T) {
	path := create(t, name(t, "b"))
	before, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	failed := errors.New("failed")
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			var inside string
			err := Do(path, func() error {
				inside, _ = os.Readlink(threadNamespace)
				return failed
			})
			if !errors.Is(err, failed) || inside == before {
				t.Errorf("Do ran in %s (outside is %s): %v", inside, before, err)
			}
		})
	}
	wg.Wait()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		after, err := os.Readlink("/proc/self/task/" + task.Name() + "/ns/net")
		if err == nil && after != before {
			t.Errorf("thread %s is still in %s", task.Name(), after)
		}
	}
}

func TestNetnsMissing(t *testing.T) {
	if err := Do("/run/netns/vt-no-such", func() error { return nil }); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Do in a missing namespace: %v", err)
	}
	for _, name := range []string{"", "../x", "a/b", "."} {
		if _, err := Create(name); err == nil || vitrine.IsUnsupported(err) {
			t.Errorf("Create(%q): %v", name, err)
		}
	}
}

func BenchmarkCreateDelete(b *testing.B) {
	for b.Loop() {
		if _, err := Create(fmt.Sprintf("vt-test%d-bench", os.Getpid())); err != nil {
			b.Fatal(err)
		}
		if err := Delete(fmt.Sprintf("vt-test%d-bench", os.Getpid())); err != nil {
			b.Fatal(err)
		}
	}
}

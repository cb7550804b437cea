package unikernel

import (
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"vitrine"
	"vitrine/image"
	packed "vitrine/image/unikernel"
	"vitrine/internal/netns"
	"vitrine/internal/runs"
	"vitrine/substrate/qemu/machine"
	"vitrine/substrate/substratetest"
)

// prober probes once for all tests.
var prober machine.Prober

func config(t *testing.T, run *runs.Run) Config {
	t.Helper()
	cache, err := image.FindCache("", os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	return Config{Run: run, Environ: os.Environ(), Cache: cache, Prober: &prober}
}

func TestUnikernelSubstrate(t *testing.T) {
	kernel(t)
	substratetest.Run(t, open)
}

// kernel sees to it that the kernel is in the cache that tests share: the time
// that building it takes is not that of a test.
func kernel(t *testing.T) packed.Base {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	base, err := packed.Builder{Cache: config(t, nil).Cache, Logger: log}.Base(t.Context())
	if vitrine.IsUnsupported(err) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return base
}

func open(t *testing.T, root string) substratetest.Harness {
	t.Helper()
	s, run := substrateOf(t, root, func(*Config) {})
	return substratetest.Harness{Substrate: s, Run: run, Left: left, Machine: &substratetest.Machine{
		Memory: 64 << 20, Extra: overheadMemory, Quota: 0.5, Single: true,
		Processes: func(mark string) ([]int, error) {
			id, _, _ := strings.Cut(strings.TrimPrefix(mark, "mark-"), "-")
			return machines(id)
		},
	}}
}

// substrateOf makes a substrate with a run of its own, which is closed after the
// test.
func substrateOf(t *testing.T, root string, change func(*Config)) (*Substrate, *runs.Run) {
	t.Helper()
	run, err := runs.New(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := run.Close(); err != nil {
			t.Error(err)
		}
	})
	c := config(t, run)
	change(&c)
	s, err := New(c)
	if vitrine.IsUnsupported(err) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s, run
}

// left finds what of the run is on this host: cgroups, namespaces, machines.
func left(run string) ([]string, error) {
	var found []string
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.Contains(path, "/vitrine/"+run) {
			found = append(found, path)
		}
		return nil // groups of others come and go meanwhile
	})
	if err != nil {
		return nil, err
	}
	names, err := netns.List("vt-" + run)
	if err != nil {
		return nil, err
	}
	found = append(found, names...)
	pids, err := machines(run)
	for _, pid := range pids {
		found = append(found, "machine "+strconv.Itoa(pid))
	}
	return found, err
}

// machines finds QEMU's processes of the run.
func machines(run string) ([]int, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	var found []int
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil || !strings.HasPrefix(string(b), machine.Program) || !strings.Contains(string(b), "\x00vt-"+run+"-") {
			continue // it has ended, or is another
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return nil, err
		}
		found = append(found, pid)
	}
	return found, nil
}

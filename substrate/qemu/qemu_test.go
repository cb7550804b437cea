package qemu

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"vitrine"
	"vitrine/fabric/fabrictest"
	"vitrine/image"
	"vitrine/internal/hosttest"
	"vitrine/internal/runstate"
	"vitrine/substrate/qemu/machine"
	"vitrine/substrate/substratetest"
)

func TestMain(m *testing.M) {
	inherited := os.Getenv(agentEnv)
	code := m.Run()
	if built := os.Getenv(agentEnv); built != inherited {
		_ = os.RemoveAll(filepath.Dir(built))
	}
	os.Exit(code)
}

// agentProgram builds the guest's agent, once for all tests.
var agentProgram = sync.OnceValues(func() (string, error) {
	if path := os.Getenv(agentEnv); path != "" {
		return path, nil
	}
	dir, err := os.MkdirTemp("", "qemu-agent-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "agent")
	if err := hosttest.Build(context.Background(), path, "vitrine/substrate/qemu/guest/program"); err != nil {
		return "", err
	}
	return path, os.Setenv(agentEnv, path) // for child processes of the tests
})

const agentEnv = "QEMU_TEST_AGENT"

// prober is shared, so that all tests probe once.
var prober machine.Prober

func config(t *testing.T, run *runstate.Run) Config {
	t.Helper()
	agent, err := agentProgram()
	if err != nil {
		t.Fatalf("build the agent: %v", err)
	}
	cache, err := image.FindCache("", os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	return Config{Run: run, Environ: os.Environ(), Cache: cache, Prober: &prober, Agent: []string{agent}}
}

func TestQemuSubstrate(t *testing.T) { substratetest.Run(t, open) }

func open(t *testing.T, root string) substratetest.Harness {
	t.Helper()
	run := fabrictest.NewRun(t, root)
	s, err := New(config(t, run))
	hosttest.Need(t, err)
	return substratetest.Harness{Substrate: s, Run: run, Machine: &substratetest.Machine{
		Memory: MinMemory, Extra: machine.OverheadMemory, Quota: 0.5, Processes: s.processes,
	}}
}

// processes finds the processes in all machines that have the mark as an argument.
func (s *Substrate) processes(mark string) ([]int, error) {
	var pids []int
	for _, in := range s.instances.All() {
		in := in.(*Instance)
		in.booting.Lock()
		up := in.guest != nil
		in.booting.Unlock()
		if !up {
			continue
		}
		dir, err := os.MkdirTemp("", "qemu-test-")
		if err != nil {
			return nil, err
		}
		found := filepath.Join(dir, "found")
		// The pattern comes on standard input, so grep does not find itself.
		script := `printf '%s' "${0#=}" | grep -lzxFf - /proc/[0-9]*/cmdline 2>/dev/null; :`
		err = in.Run(context.Background(), vitrine.Command{Args: []string{"/bin/sh", "-c", script, "=" + mark}, Stdout: found})
		text, reading := os.ReadFile(found)
		if err := errors.Join(err, reading, os.RemoveAll(dir)); err != nil {
			return nil, err
		}
		for file := range strings.FieldsSeq(string(text)) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			if err != nil {
				return nil, err
			}
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

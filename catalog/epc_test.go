package catalog

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"vitrine/internal/hosttest"
	"vitrine/internal/netns"
	"vitrine/substrate/docker/dockertest"
)

// TestEPCCountsAgree characterises the reference EPC for seconds, with the program
// itself, and compares trials.csv with the counters that its components printed.
func TestEPCCountsAgree(t *testing.T) {
	t.Parallel()
	hosttest.Need(t, netns.Possible())
	program := hosttest.Built(t, hosttest.Product)
	for _, c := range []struct {
		substrate string
		rate      int // calls per second; low for machines, which are emulated if the host has no KVM
	}{{"process", 20}, {"docker", 20}, {"qemu", 3}} {
		t.Run(c.substrate, func(t *testing.T) {
			t.Parallel()
			var environ []string
			if c.substrate == "docker" {
				environ = append(environ, "DOCKER_HOST="+dockertest.Start(t))
			}
			compareCounts(t, characterizeEPC(t, program, "deployment.yaml", "mm1l", c.substrate, c.rate, environ), "mme-1", "sgw-1", "pgw-1")
		})
	}
	t.Run("one process", func(t *testing.T) {
		t.Parallel()
		compareCounts(t, characterizeEPC(t, program, "deployment-one-process.yaml", "ep1l", "process", 20, nil), "epc-1", "epc-1", "epc-1")
	})
}

// compareCounts compares the calls of a run with the counters of the instances that have
// the MME, the S-GW and the P-GW.
func compareCounts(t *testing.T, run, mme, sgw, pgw string) {
	t.Helper()
	calls := trialSums(t, run)
	if calls["offered"] == 0 || calls["succeeded"] != calls["offered"] {
		t.Errorf("%d calls scheduled, %d offered, %d succeeded", calls["scheduled"], calls["offered"], calls["succeeded"])
	}
	for _, counter := range []struct{ instance, name string }{
		{mme, `mme_procedures_total{outcome="success",procedure="attach"}`},
		{mme, `mme_procedures_total{outcome="success",procedure="detach"}`},
		{sgw, `sgw_procedures_total{cause="16",procedure="create-session"}`}, // 16: request accepted
		{pgw, `pgw_procedures_total{cause="16",procedure="create-session"}`},
		{"hss-1", `hss_procedures_total{procedure="update-location",result="2001"}`}, // 2001: success
	} {
		if got := printed(t, run, counter.instance, counter.name); got != calls["succeeded"] {
			t.Errorf("%s of %s is %d, and %d calls succeeded", counter.name, counter.instance, got, calls["succeeded"])
		}
	}
}

var sizes = regexp.MustCompile(`sizes: \[.*\]`)

// characterizeEPC measures one size at one rate and returns the run folder. It skips
// the test if the host does not support the substrate.
func characterizeEPC(t *testing.T, program, file, size, substrate string, rate int, environ []string) string {
	t.Helper()
	dir := t.TempDir()
	text, err := os.ReadFile("epc-reference/" + file)
	if err != nil {
		t.Fatal(err)
	}
	sized := sizes.ReplaceAll(text, []byte("sizes: ["+size+"]"))
	if bytes.Equal(sized, text) {
		t.Fatal("the deployment has no sizes to replace")
	}
	// Without load control, a slow host makes attaches late, and no call fails.
	const workers = `--workers, "1",`
	deployment := bytes.Replace(sized, []byte(workers), []byte(workers+` --overload, "off",`), 1)
	if bytes.Equal(deployment, sized) {
		t.Fatal("the deployment has no MME with the default workers")
	}
	// There is no warm-up: the MME would count its calls, but trials.csv would not.
	workload := fmt.Sprintf("generator: s1ap\nparameters: {scenario: attach-detach, timeout: 30s}\n"+
		"range: [%d, %d]\nsearch: ramp\nincrease: 1\nduration: 3s\nsettle: 0s\n", rate, rate)
	for name, text := range map[string][]byte{"deployment.yaml": deployment, "workload.yaml": []byte(workload)} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := filepath.Join(dir, "run")
	cmd := exec.CommandContext(t.Context(), program, "characterize", filepath.Join(dir, "deployment.yaml"), filepath.Join(dir, "workload.yaml"),
		"--substrate", substrate, "--out", run, "--shared-cpus")
	cmd.Env = append(os.Environ(), environ...)
	out, err := cmd.CombinedOutput()
	var failed *exec.ExitError
	if errors.As(err, &failed) && failed.ExitCode() == 3 { // this host cannot
		t.Skip(string(out))
	}
	if err != nil {
		t.Fatalf("characterize: %v:\n%s", err, out)
	}
	return run
}

// printed returns the sum of a counter over everything that the instance printed.
func printed(t *testing.T, run, instance, counter string) int64 {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(run, "logs", "*", "*", instance, "log"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("no logs of %s: %v", instance, err)
	}
	var sum int64
	for _, path := range logs {
		log, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for line := range strings.Lines(string(log)) {
			value, ok := strings.CutPrefix(line, counter+" ")
			if !ok {
				continue
			}
			n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			sum, found = sum+n, true
		}
		if !found {
			t.Errorf("%s: no counter %s in it:\n%s", path, counter, log)
		}
	}
	return sum
}

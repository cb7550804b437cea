package main

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"vitrine"
	"vitrine/flex/config"
	"vitrine/flex/policy"
	"vitrine/flex/profile"
	"vitrine/result"
)

// loadFront loads a file with one type, which has these fields too.
func loadFront(t *testing.T, fields string) *config.Config {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"flex.yaml": "directors: [{control: 127.0.0.1:1}]\n" +
			"types:\n  - {name: registration, deployment: deployment.yaml, max: 2, " + fields + "}\n" +
			"servers: {substrate: process, fabric: loopback}\n",
		"deployment.yaml": "vnf_name: front\ncomponents:\n  - {name: front, short: fr, command: [vitrine], ports: {http: 80}, entry: http}\n" +
			"  - {name: worker, short: wk, command: [vitrine]}\n" +
			"  - {name: helper, short: he, scalable: false, flavor: large, command: [vitrine]}\n" +
			"flavors: [{name: small, vcpus: 0.1, memory: 64MiB}, {name: large, vcpus: 0.4, memory: 64MiB}]\n" +
			"instances: {helper: 2}\nmode: {name: custom, sizes: [fr1s-wk3s]}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := config.Load(filepath.Join(dir, "flex.yaml"), knownBackends())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestMembersOfAFlavor checks that the CPU cost is asked for the instances that run, including those of
// a member that is not scalable.
func TestMembersOfAFlavor(t *testing.T) {
	c := loadFront(t, "flavors: [{size: fr1s-wk3s, rate: 20}]")
	kind := &c.Types[0]
	want := map[string]profile.Member{"front": {Count: 1, VCPUs: 0.1}, "worker": {Count: 3, VCPUs: 0.1}, "helper": {Count: 2, VCPUs: 0.4}}
	if got := membersOf(c, kind, kind.Flavors[0]); !maps.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestCallsOfSeveralTransactions checks that a call of three transactions may take 90 ms, if each
// transaction may take 30 ms.
func TestCallsOfSeveralTransactions(t *testing.T) {
	c := loadFront(t, "objective: {p99: 30ms}, flavors: [{size: fr1s-wk3s, profile: run, transactions_per_call: 3}]")
	kind := &c.Types[0]
	run, err := result.Create(kind.Flavors[0].Profile, result.Manifest{VNF: "front", Unit: "calls/s", Host: result.ReadHost("/")})
	if err != nil {
		t.Fatal(err)
	}
	size := vitrine.SizeProfile{
		Sizing: "fr1s-wk3s", VCPUs: 0.4, Source: vitrine.SourceMeasured, Rate: 100, Low: 92, High: 108, Censored: vitrine.CensoredNone,
		Capacities: []vitrine.Capacity{{Threshold: 0.99, Rate: 100, Low: 92, High: 108, Censored: vitrine.CensoredNone, Single: 88}},
		Latency:    []vitrine.LatencyPoint{{Rate: 30, P99: 10}, {Rate: 60, P99: 20}, {Rate: 90, P99: 80}},
	}
	err = run.SaveProfile(vitrine.Profile{
		Version: vitrine.ProfileVersion, Function: "front", Unit: "calls/s", Thresholds: []float64{0.99}, Confidence: 0.95,
		Settings:   []vitrine.Setting{{Substrate: "process", Sizes: []vitrine.SizeProfile{size}, Components: []vitrine.ComponentProfile{}}},
		Provenance: vitrine.ProfileSource{Specs: map[string]string{}},
	})
	if err := errors.Join(err, run.Close()); err != nil {
		t.Fatal(err)
	}
	got, err := capacityOf(c)(kind, kind.Flavors[0])
	if err != nil || got.Rate != 3*88 {
		t.Errorf("got %g transactions/s, %v, want 264", got.Rate, err)
	}
}

// TestResultOfRedlineIsAProfile checks that a flavor's profile may be the file that vitrine redline --out
// wrote, with the size that its capacity belongs to.
func TestResultOfRedlineIsAProfile(t *testing.T) {
	c := loadFront(t, "objective: {p99: 30ms, success: 0.99}, flavors: [{size: fr1s-wk3s, profile: front-1.json}]")
	kind := &c.Types[0]
	text := `{"vitrine_redline": 1, "type": "registration", "flavor": "fr1s-wk3s", "verdict": "within", "rate": 60, "low": 55, "high": 66,
		"objective": {"success": 0.99, "latency_ms": 30, "quantile": 0.99}, "steps": [{"rate": 50, "cpus": 0.5}]}`
	if err := os.WriteFile(kind.Flavors[0].Profile, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := capacityOf(c)(kind, kind.Flavors[0])
	if err != nil || got.Rate != 55 || got.Cost.Each != 0.01 {
		t.Errorf("got %+v, %v, want 55 transactions/s and 0.01 s of CPU for each", got, err)
	}
	kind.Flavors[0].Size = "fr1s-wk1s"
	if _, err := capacityOf(c)(kind, kind.Flavors[0]); !vitrine.IsBadInput(err) {
		t.Errorf("another size: got error %v, want bad input", err)
	}
}

// TestAnotherPolicyRunsWithoutRedline checks that redline measures only while the orchestrator's own rules
// decide.
func TestAnotherPolicyRunsWithoutRedline(t *testing.T) {
	c := loadFront(t, "flavors: [{size: fr1s-wk3s, rate: 20}], objective: {p99: 30ms, success: 0.99}, redline: {every: 1h}")
	for name, want := range map[string]bool{policy.Flex: true, "hpa": false} {
		if got := measurerOf(flexPlan{file: c, policyName: name}, nil) != nil; got != want {
			t.Errorf("policy %s: got a measurer: %v, want %v", name, got, want)
		}
	}
}

package catalog

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// TestReferenceStoreCountsAgree runs the reference IMS with a store and compares
// trials.csv with a capture at Bono. With two Sprouts, the answer to a challenge
// often reaches the Sprout that did not give it, so calls succeed only if the
// Sprouts share a store.
func TestReferenceStoreCountsAgree(t *testing.T) {
	requirePrograms(t, "ims-reference-store", "openssl", "tcpdump", "tshark")
	c := newCampaign(t, "ims-reference-store", "process", "bn1s-sp2s-hs1s", "workload.yaml")
	c.capture = []string{"bono"}
	c.config.Testbed.Self = buildVitrine(t)
	c.run()
	calls, seen := c.trials(), c.captured()
	t.Logf("trials.csv: %v; captured at Bono: %+v", calls, seen)
	if calls["offered"] == 0 || calls["offered"] != seen.calls || calls["succeeded"] != seen.complete {
		t.Errorf("offered %d, succeeded %d; captured %d calls, %d complete", calls["offered"], calls["succeeded"], seen.calls, seen.complete)
	}
	if calls["succeeded"] != calls["offered"] {
		t.Errorf("%d of %d calls succeeded", calls["succeeded"], calls["offered"])
	}
	stores, err := filepath.Glob(filepath.Join(c.dir, "run", "logs", "*", "*", "store-*", "log"))
	if err != nil || len(stores) == 0 {
		t.Errorf("no log of the store: %v", err)
	}
}

// buildVitrine builds the program that the instances run.
func buildVitrine(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "vitrine")
	build := exec.Command("go", "build", "-o", program, "vitrine/cmd/vitrine")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build vitrine: %v:\n%s", err, out)
	}
	return program
}

// TestKamailioSidecarsShareLocations runs the package with two registrars. The edge gives an
// INVITE to either of them, so all calls succeed only if each has the locations of both.
func TestKamailioSidecarsShareLocations(t *testing.T) {
	requirePrograms(t, "kamailio-sidecar", "kamailio", "kamcmd", "openssl", "tcpdump", "tshark")
	c := newCampaign(t, "kamailio-sidecar", "process", "ed1m-rg2l", "workload.yaml")
	c.config.Testbed.Self = buildVitrine(t)
	c.run()
	if calls := c.trials(); calls["offered"] == 0 || calls["succeeded"] != calls["offered"] {
		t.Errorf("%d of %d calls succeeded", calls["succeeded"], calls["offered"])
	}
}

package catalog

import (
	"path/filepath"
	"testing"

	"vitrine/internal/hosttest"
)

// TestReferenceStoreCountsAgree runs the reference IMS with a store and compares
// trials.csv with a capture at Bono. With two Sprouts, the answer to a challenge
// often reaches the Sprout that did not give it, so calls succeed only if the
// Sprouts share a store.
func TestReferenceStoreCountsAgree(t *testing.T) {
	requirePrograms(t, "ims-reference-store", "openssl", "tcpdump", "tshark")
	c := newCampaign(t, "ims-reference-store", "process", "bn1s-sp2s-hs1s", "workload.yaml")
	c.capture = []string{"bono"}
	c.config.Testbed.Self = hosttest.Built(t, hosttest.Product)
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

// TestKamailioSidecarsShareLocations runs the package with two registrars. The edge gives an
// INVITE to either of them, so all calls succeed only if each has the locations of both.
func TestKamailioSidecarsShareLocations(t *testing.T) {
	requirePrograms(t, "kamailio-sidecar", "kamailio", "kamcmd", "openssl", "tcpdump", "tshark")
	c := newCampaign(t, "kamailio-sidecar", "process", "ed1m-rg2l", "workload.yaml")
	c.config.Testbed.Self = hosttest.Built(t, hosttest.Product)
	c.run()
	if calls := c.trials(); calls["offered"] == 0 || calls["succeeded"] != calls["offered"] {
		t.Errorf("%d of %d calls succeeded", calls["succeeded"], calls["offered"])
	}
}

package catalog

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNginxCountsAgree compares trials.csv with nginx's log.
func TestNginxCountsAgree(t *testing.T) {
	t.Parallel()
	requirePrograms(t, "nginx", "nginx")
	c := newCampaign(t, "nginx", "process", "ng1l", "workload.yaml")
	c.config.Deployment.Components[0].Environment["ACCESS_LOG"] = "/dev/stdout"
	c.run()
	calls := c.trials()
	logs, err := filepath.Glob(filepath.Join(c.dir, "run", "logs", "*", "*", "web-*", "log"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("no logs: %v", err)
	}
	var requests, answers int64
	for _, path := range logs {
		log, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(log)) {
			if !strings.HasSuffix(line, "\"vitrine\"\n") { // not from the generator: a readiness probe
				continue
			}
			requests++
			if strings.Contains(line, `"GET /index.html HTTP/1.1" 200 1024 `) {
				answers++
			}
		}
	}
	t.Logf("trials.csv: %v; logged: %d requests, %d answered 200 with 1024 bytes", calls, requests, answers)
	if calls["offered"] == 0 || calls["offered"] != requests || calls["succeeded"] != answers {
		t.Errorf("offered %d, succeeded %d; nginx logged %d requests, %d answered 200 with 1024 bytes", calls["offered"], calls["succeeded"], requests, answers)
	}
}

package monitor

import (
	"os"
	"testing"
	"time"

	"vitrine"
	"vitrine/internal/hosttest"
)

// TestGaugeReadsSinceLast checks that a gauge shows the use since the last reading, and
// nothing after Close.
func TestGaugeReadsSinceLast(t *testing.T) {
	g := NewGauge([]vitrine.Vantage{{Instance: "a", Component: "c", VCPUs: 2, PID: os.Getpid()}})
	busy := func() (cpus float64) {
		use := g.Read()["a"]
		if use.CPU == nil || use.Memory == nil || use.VCPUs != 2 {
			t.Fatalf("%+v", use)
		}
		return *use.CPU
	}
	hosttest.Until(t, time.Minute, "this process is busy", func() bool {
		for begin := time.Now(); time.Since(begin) < 20*time.Millisecond; {
			continue
		}
		return busy() > 0.05
	})
	g.Close()
	if use := g.Read()["a"]; use.CPU != nil || use.Missing[vitrine.CPU] == "" {
		t.Errorf("%+v after Close", use)
	}
}

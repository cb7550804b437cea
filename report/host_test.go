package report

import (
	"strings"
	"testing"

	"vitrine"
)

// at returns a valid trial during which the host ran at a speed.
func at(speed float64) vitrine.Outcome {
	return vitrine.Outcome{Valid: true, Host: &vitrine.HostReading{During: speed}}
}

// TestHostSpeedIsThatOfValidTrials: a disturbed trial, which does not count, does not lower it.
func TestHostSpeedIsThatOfValidTrials(t *testing.T) {
	disturbed := at(0.5)
	disturbed.Valid, disturbed.Disturbed = false, true
	outcomes := []vitrine.Outcome{at(0.9), disturbed, at(0.7), {Valid: true}, at(0)}
	if got := hostSpeed(outcomes).String(); got != "0.80 (0.70 to 0.90)" {
		t.Errorf("got %s", got)
	}
	if got := hostSpeed([]vitrine.Outcome{disturbed, {Valid: true}}); got != nil {
		t.Errorf("without a watched trial: %v", got)
	}
}

func TestSlowHostIsMentioned(t *testing.T) {
	if text := slowed([]vitrine.Outcome{at(0.99), at(0.96)}); text != "" {
		t.Errorf("on a fast host: %q", text)
	}
	if text := slowed([]vitrine.Outcome{at(0.99), at(0.8)}); !strings.HasPrefix(text, "0.90 (0.80 to 0.99) of its best") {
		t.Errorf("beside neighbours: %q", text)
	}
	same, faster := Pair{Relation: "tied", HostRatio: new(1.04)}, Pair{Relation: "higher", HostRatio: new(1.2)}
	if text := same.text(); strings.Contains(text, "host") {
		t.Errorf("at the same speed: %q", text)
	}
	if text := faster.text(); !strings.HasSuffix(text, "; the host ran at 1.20 times the speed") {
		t.Errorf("on a faster host: %q", text)
	}
}

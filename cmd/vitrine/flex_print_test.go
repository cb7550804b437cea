package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"vitrine/flex"
	"vitrine/flex/unit"
)

// TestFlexPrintsNoUnknownFigures prints a type and an instance whose figures from the directors are
// unknown. They must not look like an idle instance, and failures must have their reasons.
func TestFlexPrintsNoUnknownFigures(t *testing.T) {
	s := flex.Status{
		Services:  []flex.ServiceStatus{{Name: "store", State: unit.Failed, Reason: "it cannot bind"}},
		Types:     []flex.TypeStatus{{Name: "registration", Capacity: 41.5, Success: 1, Max: 4}},
		Instances: []flex.InstanceStatus{{Name: "registration-1", State: "failed", Success: 1, Reason: "sprout ended"}},
	}
	var status, explained strings.Builder
	err := errors.Join(printFlex(&status, s), printExplanation(&explained, flex.Explanation{Type: &s.Types[0], Instance: &s.Instances[0]}))
	if err != nil {
		t.Fatal(err)
	}
	for _, zero := range []string{"0.0/s", "0.0ms", "1.0000"} {
		if strings.Contains(status.String()+explained.String(), zero) {
			t.Errorf("%s is printed for an unknown figure", zero)
		}
	}
	for text, want := range map[string][]string{
		status.String():    {"unknown", "it cannot bind"},
		explained.String(): {"the rate is unknown, active instances carry 41.5/s", "it failed: sprout ended"},
	} {
		for _, part := range want {
			if !strings.Contains(text, part) {
				t.Errorf("want %q in\n%s", part, text)
			}
		}
	}
	s.Types[0].Known, s.Instances[0].Known = true, true
	status.Reset()
	if err := printFlex(&status, s); err != nil || strings.Count(status.String(), " 0.0/s") != 3 || strings.Contains(status.String(), "unknown") {
		t.Errorf("got error %v, want rates of 0 that are known in\n%s", err, status.String())
	}
}

// TestFlexExplainsWithDates prints an event. Events reach back for days, so a time without its date does
// not say which night it was.
func TestFlexExplainsWithDates(t *testing.T) {
	var out strings.Builder
	at := time.Date(2026, 11, 30, 3, 12, 40, 0, time.Local)
	err := printExplanation(&out, flex.Explanation{Events: []flex.Event{{At: at, Kind: "lost", Instance: "session-2", Reason: "mme ended"}}})
	if want := "2026-11-30 03:12:40  lost     session-2  mme ended\n"; err != nil || out.String() != want {
		t.Errorf("got %q, error %v, want %q", out.String(), err, want)
	}
}

package main

import (
	"strings"
	"testing"

	"vitrine"
)

// TestDisjointIntervals checks that only runs of one plan on one host are compared with each other.
func TestDisjointIntervals(t *testing.T) {
	run := func(plan, host string, low, high float64) judged {
		return judged{realRecord: realRecord{Plan: plan, Host: host, Capacity: &vitrine.Capacity{Rate: high, Low: low, High: high}}}
	}
	all, successive := disjoint([]judged{
		run("1", "a", 90, 100), run("1", "b", 200, 210), run("1", "a", 100, 110), run("1", "a", 0, 0),
		run("1", "a", 101, 120), run("2", "a", 300, 310), run("1", "a", 50, 60),
	})
	if shareText(all) != "4 of 6" || shareText(successive) != "1 of 3" {
		t.Errorf("%s pairs are disjoint, and %s of successive runs", shareText(all), shareText(successive))
	}
}

// TestPageCountsHosts checks that the page says on how many hosts a plan was measured.
func TestPageCountsHosts(t *testing.T) {
	text := realRecords{{Host: "a, Linux"}, {Host: "b, Linux"}, {Host: "a, Linux"}}.origin()
	if !strings.HasSuffix(text, ", on 2 hosts (a, Linux; b, Linux)") {
		t.Error(text)
	}
}

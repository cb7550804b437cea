package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vitrine/affinity"
	"vitrine/affinity/correlate"
	captured "vitrine/affinity/message"
)

// TestSignallingIsUnderstood checks that the analysis finds each call of the load, although many
// calls are open at once.
func TestSignallingIsUnderstood(t *testing.T) {
	capture := filepath.Join(t.TempDir(), "load.pcap")
	file, err := os.Create(capture)
	if err != nil {
		t.Fatal(err)
	}
	has, err := writeSignalling(file, 40_000, steadyRate)
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if has.messages < 39_980 || has.messages > 40_000 || has.calls < 3*openCalls {
		t.Errorf("%+v in 40,000 packets", has)
	}
	c, err := affinity.ReadCaptures(t.Context(), []string{capture}, captured.Options{}, correlate.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := understood(c, has); err != nil {
		t.Error(err)
	}
	if f := c.Flows[0]; f.Type != "INVITE" || f.Count != int(has.calls)-openCalls || len(f.Messages) != packetsPerCall {
		t.Errorf("%d of %d calls have %d messages", f.Count, has.calls, len(f.Messages))
	}
	has.calls++
	if understood(c, has) == nil {
		t.Error("understood accepts an analysis that lacks a call")
	}
}

func TestLinesOfTsharkAreComparable(t *testing.T) {
	for line, want := range map[string]string{
		"INVITE\t\tc1\tz9hG4bK1\tsip:a@ims.test\tsip:b@ims.test\tt1\t\t\t\t\t\t\t\t":        "INVITE\tc1\tz9hG4bK1\ta@ims.test\tb@ims.test\tt1",
		"INVITE\t180\tc1\tz9hG4bK1\tsip:a@ims.test\tsip:b@ims.test\tt1\tt2\t\t\t\t\t\t\t":   "180 INVITE\tc1\tz9hG4bK1\ta@ims.test\tb@ims.test\tt1\tt2",
		"\t\t\t\t\t\t\t\t302\t1\t0x00000010\t0x00000011\ts;1;2\ta@ims.test\tsip:a@ims.test": "Location-Info-Request\t0x10\t0x11\ts;1;2\ta@ims.test\ta@ims.test",
		"\t\t\t\t\t\t\t\t302\tFalse\t0x00000010\t0x00000011\ts;1;2\t\t":                     "Location-Info-Answer\t0x10\t0x11\ts;1;2",
		"nothing": "nothing",
	} {
		if got := asOurs(line); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", strings.ReplaceAll(line, "\t", "|"), got, want)
		}
	}
}

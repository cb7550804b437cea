package monitor

import (
	"strings"
	"testing"
)

// TestCheck checks that each line has either a method or a reason.
func TestCheck(t *testing.T) {
	checks := Check(t.Context())
	if len(checks) == 0 {
		t.Fatal("no checks")
	}
	for _, c := range checks {
		t.Logf("%+v", c)
		if !strings.HasPrefix(c.Name, "monitor: ") || c.OK == (c.Missing != "") || c.OK != (c.Detail != "") {
			t.Errorf("%+v", c)
		}
	}
}

func TestCheckSoftirq(t *testing.T) {
	for text, want := range map[string]string{
		"CONFIG_IRQ_TIME_ACCOUNTING=y\nCONFIG_HZ=1000\n":           "measured",
		"# CONFIG_IRQ_TIME_ACCOUNTING is not set\nCONFIG_HZ=250\n": "250 Hz",
		"": "unknown whether",
	} {
		if c := checkSoftirq(parseConfig(strings.NewReader(text))); !strings.Contains(c.Detail, want) {
			t.Errorf("%q: %+v", text, c)
		}
	}
}

package sipp

import (
	"os"
	"testing"

	"vitrine/internal/hosttest"
	"vitrine/load/loadtest"
	"vitrine/load/sip"
)

func TestMain(m *testing.M) {
	loadtest.Main(Run)
	os.Exit(m.Run())
}

// TestSIPp runs the real SIPp; CI must not skip it.
func TestSIPp(t *testing.T) {
	_, err := Version(t.Context())
	hosttest.Need(t, err)
	loadtest.Run(t, loadtest.Subject{
		Program:   []string{os.Args[0], "generate"},
		Protocol:  loadtest.SIP(),
		Params:    map[string]string{"port": "0"},
		Scenarios: []string{sip.RegDereg, sip.RegSubscribe, sip.RegInvite},
		Scratch:   true,
		Steady:    true,
	})
}

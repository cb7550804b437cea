package s1ap

import (
	"os"
	"testing"

	"vitrine/load/loadtest"
)

func TestMain(m *testing.M) {
	runMME()
	loadtest.Main(Run)
	os.Exit(m.Run())
}

func TestGenerator(t *testing.T) {
	loadtest.Run(t, loadtest.Subject{
		Program:   []string{os.Args[0], "generate"},
		Protocol:  loadtest.S1AP(),
		Params:    map[string]string{"scenario": AttachDetach, "enodebs": "3"},
		Scenarios: []string{Attach, AttachDetach},
	})
}

package http

import (
	"os"
	"testing"

	"vitrine/load/loadtest"
)

func TestMain(m *testing.M) {
	loadtest.Main(Run)
	os.Exit(m.Run())
}

func TestGenerator(t *testing.T) {
	loadtest.Run(t, loadtest.Subject{
		Program:   []string{os.Args[0], "generate"},
		Protocol:  loadtest.HTTP(),
		Scenarios: []string{"get"},
	})
}

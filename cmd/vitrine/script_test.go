package main

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"vitrine/internal/hosttest"
)

// The scripts in testdata/script run this program as a user does.
func TestMain(m *testing.M) {
	endSoon()
	testscript.Main(m, map[string]func(){"vitrine": main})
}

// endSoon gives GORACE to the programs that vitrine measure runs for every stream, which end with
// success. Instances do not inherit GORACE, which also sets how long a process under the race
// detector sleeps before it ends.
func endSoon() {
	if !hosttest.Raced || os.Getenv("GORACE") != "" || len(os.Args) < 3 || os.Args[1] != "reference" ||
		!slices.Contains([]string{"send", "receive", "echo"}, os.Args[2]) {
		return
	}
	self, err := os.Executable()
	if err == nil {
		err = syscall.Exec(self, os.Args, append(os.Environ(), "GORACE=atexit_sleep_ms=10"))
	}
	panic(err)
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		Condition: func(name string) (bool, error) {
			if name == "root" {
				return os.Geteuid() == 0, nil
			}
			return false, nil
		},
		Setup: func(e *testscript.Env) error {
			e.Setenv("TMPDIR", e.WorkDir)
			e.Defer(func() {
				for _, mounted := range []string{"small", "locked", "archive"} { // by faults.txtar
					_ = syscall.Unmount(filepath.Join(e.WorkDir, mounted), syscall.MNT_DETACH) // fails if the script has no mount there
				}
			})
			return nil
		},
	})
}

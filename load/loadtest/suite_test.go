package loadtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestProcessesInFindsSubfolders checks that the suite finds a generator's child in a subfolder of
// scratch, but not a child in another folder next to scratch.
func TestProcessesInFindsSubfolders(t *testing.T) {
	scratch := t.TempDir()
	for folder, want := range map[string]int{scratch: 1, filepath.Join(scratch, "sipp-1"): 1, scratch + "-other": 0} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		child := exec.Command("cat")
		child.Dir = folder
		stdin, err := child.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		if got := processesIn(t, scratch); len(got) != want {
			t.Errorf("a process in %s: found processes %v, want %d", folder, got, want)
		}
		stdin.Close()
		if err := child.Wait(); err != nil {
			t.Error(err)
		}
	}
}

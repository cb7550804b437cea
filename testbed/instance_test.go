package testbed

import (
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/substrate"
)

// TestScratchOfAnotherUser checks that an ordinary user learns what to do about a scratch folder with
// files that only another user may remove, such as those of root in a container.
func TestScratchOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip(&vitrine.Unsupported{What: "files of another user", Missing: "root"})
	}
	in := &Instance{Spec: Spec{Spec: substrate.Spec{Name: "c-1", Dir: t.TempDir()}}}
	if err := os.Mkdir(in.Scratch(), 0o755); err != nil {
		t.Fatal(err)
	}
	cleared := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := unix.Setfsuid(65534)
		if err == nil {
			err = in.ClearScratch()
		}
		cleared <- err
	}()
	if err := <-cleared; err == nil || !strings.Contains(err.Error(), "set the component's user to") {
		t.Errorf("got error %v, want what to do", err)
	}
}

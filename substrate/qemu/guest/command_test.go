package guest

import (
	"path/filepath"
	"testing"
)

// TestEndOfWhatHasEnded: end succeeds for a command whose cgroup is already gone.
func TestEndOfWhatHasEnded(t *testing.T) {
	r := &command{group: filepath.Join(t.TempDir(), "gone"), ended: make(chan struct{})}
	close(r.ended)
	a := &agent{commands: map[uint32]*command{7: r}}
	if err := a.end(t.Context(), 7); err != nil || a.find(7) != nil {
		t.Errorf("ending what has ended: %v", err)
	}
}

package trial

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"time"

	"vitrine"
	"vitrine/substrate"
	"vitrine/testbed"
)

// The CPU time of the processes that keep CPUs awake is the run's own.
func TestSpinningIsTheRunsOwn(t *testing.T) {
	in := awake{&testbed.Instance{Spec: testbed.Spec{Spec: substrate.Spec{Dir: t.TempDir()}}}}
	if err := os.Mkdir(filepath.Dir(in.spunFile()), 0o755); err != nil {
		t.Fatal(err)
	}
	s := &site{awake: []awake{in}}
	if spun := s.spun(); spun != 0 {
		t.Errorf("%v before any was written", spun)
	}
	spin := func(sum time.Duration) {
		if err := os.WriteFile(in.spunFile(), binary.LittleEndian.AppendUint64(nil, uint64(sum)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	spin(3 * time.Second)
	l := &lookout{spun: s.spun(), to: time.Time{}.Add(2 * time.Second)}
	spin(4 * time.Second)
	if own := l.own(s, map[string]vitrine.Use{"bono-1": {CPU: new(0.25)}}); own != 0.75 {
		t.Errorf("the run used %v CPUs, want 0.75", own)
	}
}

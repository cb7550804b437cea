package trial

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vitrine/substrate"
	"vitrine/testbed"
)

func TestDisturbedTrialsAreKnown(t *testing.T) {
	dir := t.TempDir()
	spin := &awake{Instance: &testbed.Instance{Spec: testbed.Spec{Spec: substrate.Spec{Dir: dir}}}, cpu: 3}
	file := spin.lapFile()
	if err := os.Mkdir(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	s := &site{awake: []*awake{spin}}
	if laps := s.laps(); laps[0] != (lap{}) {
		t.Errorf("laps %v before any was written", laps)
	}
	done := lap{}
	for i, c := range []struct {
		speed, seconds float64
		want           string
	}{
		{speed: 1, seconds: 1},                  // unknown: nothing was written before
		{speed: 0.5, seconds: 1},                // the best so far
		{speed: 0.55, seconds: 1},               //
		{speed: 0.47, seconds: 1},               // within what varies
		{speed: 0.13, seconds: 1, want: "0.24"}, // another machine had the CPU
		{speed: 0.13, seconds: 0.01},            // too short to tell
		{speed: 0.54, seconds: 2},
	} {
		before := s.laps()
		done.work += uint64(c.speed * c.seconds * 1e9)
		done.cpu += uint64(c.seconds * 1e9)
		text := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, done.work), done.cpu)
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		err := s.undisturbed(before)
		if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), "CPU 3 ran at "+c.want) {
			t.Errorf("trial %d at %g: %v, want %q", i, c.speed, err, c.want)
		}
	}
}

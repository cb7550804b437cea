package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"vitrine/internal/hosttest"
	"vitrine/load"
	"vitrine/load/s1ap"
)

// TestReplayerSendsTheRecordedBytes records attaches and detaches, and replays them. A replay with
// another byte must fail.
func TestReplayerSendsTheRecordedBytes(t *testing.T) {
	replayer, err := compileC(t.Context(), t.TempDir(), "replayer", replayerSource)
	hosttest.Need(t, err)
	c, err := recordS1AP(t.Context(), func(ctx context.Context, target string) error {
		trial := load.Trial{Rate: 100, Duration: 0.3, Seed: 1, Params: map[string]string{"scenario": s1ap.AttachDetach}, Targets: []string{target}}
		return s1ap.Run(ctx, trial, new(bytes.Buffer), new(bytes.Buffer))
	})
	if err != nil {
		t.Fatal(err)
	}
	uplink, file := c.uplink(), filepath.Join(t.TempDir(), "uplink")
	const least = 30 * 100 // bytes; 30 calls have far more
	if len(uplink) < least || c.answers() < least {
		t.Errorf("%d bytes from the eNodeB, %d from the MME", len(uplink), c.answers())
	}
	write := func() {
		if err := os.WriteFile(file, uplink, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write()
	if _, err := c.replay(t.Context(), replayer, file); err != nil {
		t.Error(err)
	}
	uplink[len(uplink)-1] ^= 1
	write()
	if _, err := c.replay(t.Context(), replayer, file); err == nil {
		t.Error("answer accepts a replay with another byte")
	}
}

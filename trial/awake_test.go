package trial

import (
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"time"

	"vitrine"
	"vitrine/substrate"
	"vitrine/testbed"
	"vitrine/testbed/quiet"
)

// The CPU time of the processes that keep CPUs awake counts as the run's own, but only
// the time during the trial.
func TestSpinningIsTheRunsOwn(t *testing.T) {
	in := awake{&testbed.Instance{Spec: testbed.Spec{Spec: substrate.Spec{Dir: t.TempDir()}}}}
	if err := os.Mkdir(filepath.Dir(in.spunFile()), 0o755); err != nil {
		t.Fatal(err)
	}
	var sum time.Duration
	spin := func(more time.Duration) {
		sum += more
		if err := os.WriteFile(in.spunFile(), binary.LittleEndian.AppendUint64(nil, uint64(sum)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w := &waiting{spin: spin}
	s := &site{Campaign: &Campaign{Config: Config{Watch: func(context.Context) (quiet.Watch, error) {
		spin(8 * time.Second) // the watch waits before a trial that is tried again
		return w, nil
	}}}, awake: []awake{in}}
	if spun := s.spun(); spun != 0 {
		t.Errorf("%v before any was written", spun)
	}
	l, err := s.lookOut(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	spin(time.Second) // the trial, of 2 s
	if err := l.end(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	spin(time.Second) // until it is judged
	l.judge(&vitrine.Outcome{}, map[string]vitrine.Use{"bono-1": {CPU: new(0.25)}})
	if w.own != 0.75 {
		t.Errorf("the run used %v CPUs, want 0.75", w.own)
	}
}

// A waiting is a watch that reads a trial of 2 s, and takes more time itself.
type waiting struct {
	spin func(time.Duration)
	own  float64
}

func (w *waiting) End(context.Context) (from, to time.Time, err error) {
	w.spin(time.Second)
	return from, from.Add(2 * time.Second), nil
}

func (w *waiting) Judge(own float64) (vitrine.HostReading, string) {
	w.own = own
	return vitrine.HostReading{}, ""
}

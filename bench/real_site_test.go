package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"vitrine"
	"vitrine/internal/cgroup"
	"vitrine/internal/hosttest"
	"vitrine/testbed/quiet"
)

// A scriptedWatch finds a trial disturbed for the given reason, or undisturbed if the reason is empty.
type scriptedWatch struct {
	began time.Time
	why   string
}

func (w scriptedWatch) End(context.Context) (from, to time.Time, err error) {
	return w.began, time.Now(), nil
}

func (w scriptedWatch) Judge(float64) (vitrine.HostReading, string) {
	return vitrine.HostReading{}, w.why
}

// TestCampaignContinuesAfterNoise runs a campaign on a real function. Noise ends the first call after
// one good trial. The second call must keep that trial, make the missing one, and leave no files.
func TestCampaignContinuesAfterNoise(t *testing.T) {
	_, err := cgroup.Detect()
	hosttest.Need(t, err)
	function := realFunctions()[0]
	if function.Folder, err = filepath.Abs(filepath.Join("..", function.Folder)); err != nil {
		t.Fatal(err)
	}
	site := &realSite{function: function, counts: realCounts{Precision: 0.3}, dir: t.TempDir(), progress: t.Output()}
	hosttest.Need(t, site.prepare(t.Context()))
	noisy, good := false, 0
	site.watch = func(context.Context) (quiet.Watch, error) {
		w := scriptedWatch{began: time.Now()}
		if noisy && good > 0 {
			w.why = "the test says so"
		} else {
			good++
		}
		return w, nil
	}
	asked := campaignRequest{block: &block{rates: []float64{100, 120}, window: time.Second, precision: 0.3, threshold: 0.9}}

	noisy = true
	if _, err := site.drive(t.Context(), asked); !errors.Is(err, quiet.ErrTooNoisy) {
		t.Fatalf("got %v, want that the host is too noisy", err)
	}
	noisy = false
	got, err := site.drive(t.Context(), asked)
	if err != nil {
		t.Fatal(err)
	}
	if disturbed := len(got.outcomes) - good; good != 2 || disturbed < 2 {
		t.Errorf("%d good trials and %d disturbed ones, want 2 good ones", good, disturbed)
	}
	for _, o := range got.outcomes {
		if !o.Disturbed && (!o.Valid || o.Succeeded == 0) {
			t.Errorf("a trial without disturbance: %+v", o)
		}
	}
	files, err := os.ReadDir(site.dir)
	if err != nil || len(files) != 1 {
		t.Errorf("the campaign left %v, %v, want the program alone", files, err)
	}
}

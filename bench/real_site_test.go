package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"vitrine/internal/cgroup"
	"vitrine/internal/hosttest"
	"vitrine/testbed/quiet"
	"vitrine/testbed/quiet/quiettest"
)

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
	noisy := true
	host := &quiettest.Noise{Disturbs: func(trial int) bool { return noisy && trial > 0 }}
	site.watch = host.Watch
	asked := campaignRequest{block: &block{rates: []float64{100, 120}, window: time.Second, precision: 0.3, threshold: 0.9}}

	if _, err := site.drive(t.Context(), asked); !errors.Is(err, quiet.ErrTooNoisy) {
		t.Fatalf("got %v, want that the host is too noisy", err)
	}
	noisy = false
	got, err := site.drive(t.Context(), asked)
	if err != nil {
		t.Fatal(err)
	}
	good := 0
	for _, o := range got.outcomes {
		if o.Disturbed {
			continue
		}
		good++
		if !o.Valid || o.Succeeded == 0 {
			t.Errorf("a trial without disturbance: %+v", o)
		}
	}
	if disturbed := len(got.outcomes) - good; good != 2 || disturbed < 2 || len(got.outcomes) != len(host.Own) {
		t.Errorf("%d good trials and %d disturbed ones of %d, want 2 good ones", good, disturbed, len(host.Own))
	}
	files, err := os.ReadDir(site.dir)
	if err != nil || len(files) != 1 {
		t.Errorf("the campaign left %v, %v, want the program alone", files, err)
	}
}

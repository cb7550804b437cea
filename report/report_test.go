package report_test

import (
	"os"
	"path/filepath"
	"testing"

	"vitrine/report"
	"vitrine/result"
)

// TestLook writes reports where VITRINE_TEST_LOOK says, to be looked at.
func TestLook(t *testing.T) {
	dir := os.Getenv("VITRINE_TEST_LOOK")
	if dir == "" {
		t.Skip("VITRINE_TEST_LOOK names no folder")
	}
	a := directed()
	if err := report.Write(filepath.Join(dir, "one"), load(t, a.build(t, filepath.Join(dir, "one")))); err != nil {
		t.Fatal(err)
	}
	if err := report.Text(os.Stdout, load(t, filepath.Join(dir, "one"))); err != nil {
		t.Fatal(err)
	}
	b := directed()
	b.seconds, b.repeats = 20, 2
	b.rates = []float64{40, 60, 80, 100, 120, 140, 160, 180, 200, 220, 240, 260, 280, 300, 320, 340}
	b.path = nil
	for _, s := range []string{"bn1s-sp1s-hs1s", "bn1m-sp1m-hs1m", "bn1m-sp2s-hs2s", "bn1l-sp1l-hs1l", "bn1l-sp1l-hs2m", "bn1l-sp2m-hs1l", "bn1l-sp2m-hs2m", "bn1l-sp1l-hs4s", "bn1l-sp4s-hs1l", "bn1l-sp4s-hs4s"} {
		b.path = append(b.path, result.Step{Sizing: s, Why: "custom: number 1 of the list"})
	}
	if err := report.Write(filepath.Join(dir, "ten"), load(t, b.build(t, filepath.Join(dir, "ten")))); err != nil {
		t.Fatal(err)
	}
	c, d := directed(), directed()
	c.options, d.options, d.speed, d.seed = "pinning=off", "pinning=on", 1.12, 9
	runs := []*result.Data{
		load(t, c.build(t, filepath.Join(dir, "monday"))), load(t, d.build(t, filepath.Join(dir, "tuesday"))),
	}
	if err := report.Write(filepath.Join(dir, "compared"), runs...); err != nil {
		t.Fatal(err)
	}
	if err := report.Compare(os.Stdout, runs...); err != nil {
		t.Fatal(err)
	}
}

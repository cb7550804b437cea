package result_test

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"vitrine"
	"vitrine/result"
)

const usageText = result.UsageHeader + `
-0.5,bono-1,bono,0.125,1048576,100,200,0,,,
0,bono-1,bono,,1048577,,,,,,"cpu: no such file, network: shared"
0,cpu0,host,0.5,,,,,0.125,0.0625,
`

func samples(t *testing.T, text string) ([]result.Sample, error) {
	t.Helper()
	var list []result.Sample
	err := result.ReadUsage(strings.NewReader(text), func(s result.Sample) error {
		list = append(list, s)
		return nil
	})
	return list, err
}

func TestUsageIsRead(t *testing.T) {
	got, err := samples(t, usageText)
	if err != nil || len(got) != 3 {
		t.Fatalf("%v, %v", got, err)
	}
	if s := got[0]; s.Time != -0.5 || s.Instance != "bono-1" || s.Component != "bono" || *s.CPU != 0.125 ||
		*s.Memory != 1048576 || *s.RxBytes != 100 || *s.TxBytes != 200 || *s.Throttled != 0 || s.Softirq != nil {
		t.Errorf("first %+v", s)
	}
	if s := got[1]; s.CPU != nil || *s.Memory != 1048577 || s.Missing != "cpu: no such file, network: shared" {
		t.Errorf("second %+v", s)
	}
	if s := got[2]; *s.Softirq != 0.125 || *s.Steal != 0.0625 || s.Memory != nil {
		t.Errorf("third %+v", s)
	}
}

func TestTornUsageHasItsWholeLines(t *testing.T) {
	for cut := len(usageText) - 60; cut < len(usageText); cut++ {
		got, err := samples(t, usageText[:cut])
		if want := strings.Count(usageText[:cut], "\n") - 1; err != nil || len(got) != want { // minus the header
			t.Fatalf("cut at %d: %d samples, want %d: %v", cut, len(got), want, err)
		}
	}
	if got, err := samples(t, usageText+"1,bono-1,bono,,,,,,,,no such"); err != nil || len(got) != 3 {
		t.Errorf("cut in the last cell: %d samples, %v", len(got), err)
	}
	if got, err := samples(t, ""); err != nil || got != nil {
		t.Errorf("an empty file has %v, %v", got, err)
	}
}

func TestDamagedUsageNamesTheLine(t *testing.T) {
	for text, want := range map[string]string{
		"a,b\n": "line 1: not the header",
		strings.Replace(usageText, "0.125", "lots", 1):         `line 2: "lots" is not a number`,
		strings.Replace(usageText, "0.125", "NaN", 1):          `line 2: "NaN" is not a number`,
		strings.Replace(usageText, "-0.5,", "soon,", 1):        `line 2: t_s is "soon"`,
		strings.Replace(usageText, "-0.5,bono-1,", "-0.5,", 1): "line 2",
	} {
		_, err := samples(t, text)
		wantError(t, err, want)
	}
}

func watched(t *testing.T, dir string) {
	t.Helper()
	r := create(t, dir)
	w, path, err := r.CreateUsage(outcome(1).Key)
	if err != nil {
		t.Fatal(err)
	}
	if path != filepath.Join(dir, "usage", "1-1.csv") {
		t.Errorf("path %q", path)
	}
	if _, err := io.WriteString(w, usageText); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	appendAll(t, r, 1, 2)
	o := outcome(3)
	o.Scheduled, o.Succeeded = 0, 0
	if err := r.Append(o); err != nil {
		t.Fatal(err)
	}
	closed(t, r)
}

func TestUsageMovesToTheStartOfTheWindow(t *testing.T) {
	const row, rest = ",bono-1,bono,0.125,,,,,,,\n", ",bono-1,bono,,,,,,,,\"cpu: no such file, network: shared\"\n"
	w, path, err := create(t, t.TempDir()).CreateUsage(outcome(1).Key)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.WriteString(w, result.UsageHeader+"\n-0.5000"+row+"10.0000"+rest)
	if err := errors.Join(err, w.MoveOrigin(1500*time.Millisecond), w.Close()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if want := result.UsageHeader + "\n-2.0000" + row + "8.5000" + rest; err != nil || string(text) != want {
		t.Errorf("got %s, %v, want %s", text, err, want)
	}
}

func TestUsageOnDemand(t *testing.T) {
	dir := t.TempDir()
	watched(t, dir)
	d, err := result.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	if err := d.Usage(outcome(1).Key, func(result.Sample) error { n++; return nil }); err != nil || n != 3 {
		t.Errorf("%d samples, %v", n, err)
	}
	if err := d.Usage(outcome(2).Key, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Usage of a trial without monitor returns %v", err)
	}
}

func TestParquetMatchesTheTables(t *testing.T) {
	dir := t.TempDir()
	watched(t, dir)
	type trial struct {
		Seq   int64    `parquet:"seq"`
		Rate  float64  `parquet:"rate"`
		Ratio *float64 `parquet:"success_ratio,optional"`
		Valid bool     `parquet:"valid"`

		Accelerator string   `parquet:"accelerator"`
		Other       *float64 `parquet:"host_other_cpus,optional"`
		After       *float64 `parquet:"host_speed_after_ratio,optional"`
		Longest     *float64 `parquet:"sampling_longest_s,optional"`
		Gaps        *int64   `parquet:"sampling_gaps,optional"`
		Late        *float64 `parquet:"generator_late_s,optional"`
	}
	trials, err := parquet.ReadFile[trial](filepath.Join(dir, "trials.parquet"))
	if err != nil || len(trials) != 3 {
		t.Fatalf("%v, %v", trials, err)
	}
	if trials[1].Seq != 2 || trials[1].Rate != 101 || *trials[1].Ratio != 0.993333 || !trials[1].Valid || trials[1].Accelerator != "kvm" || *trials[1].Other != 0.012346 || trials[1].After != nil || *trials[1].Longest != 2.1 || *trials[1].Gaps != 1 || *trials[1].Late != 0.52 || trials[2].Ratio != nil {
		t.Errorf("trials %+v", trials)
	}
	type usage struct {
		Seq      int64    `parquet:"seq"`
		Sizing   string   `parquet:"sizing"`
		Instance string   `parquet:"instance"`
		CPU      *float64 `parquet:"cpu,optional"`
		Steal    *float64 `parquet:"steal,optional"`
		Missing  string   `parquet:"missing"`
	}
	rows, err := parquet.ReadFile[usage](filepath.Join(dir, "usage.parquet"))
	if err != nil || len(rows) != 3 {
		t.Fatalf("%v, %v", rows, err)
	}
	if rows[0].Sizing != "bn1s-sp1s" || *rows[0].CPU != 0.125 || rows[1].CPU != nil || rows[1].Missing == "" || *rows[2].Steal != 0.0625 {
		t.Errorf("usage %+v", rows)
	}
}

// TestUnchangedRunKeepsItsParquetFiles opens and closes a run, as a refused --resume does.
func TestUnchangedRunKeepsItsParquetFiles(t *testing.T) {
	dir := t.TempDir()
	watched(t, dir)
	write(t, []byte("kept"), dir, "usage.parquet")
	closed(t, reopen(t, dir))
	if string(read(t, dir, "usage.parquet")) != "kept" {
		t.Error("Close wrote usage.parquet, although nothing had changed")
	}
	r := reopen(t, dir)
	appendAll(t, r, 4)
	closed(t, r)
	if string(read(t, dir, "usage.parquet")) == "kept" {
		t.Error("Close did not write usage.parquet after another trial")
	}
}

func TestDamagedUsageKeepsOtherData(t *testing.T) {
	dir := t.TempDir()
	r := create(t, dir)
	w, path, err := r.CreateUsage(outcome(1).Key)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	write(t, []byte("garbage\n\x00\n"), path)
	appendAll(t, r, 1)
	wantError(t, r.Close(), "usage/1-1.csv", "header")
	if rows, err := parquet.ReadFile[struct {
		Seq int64 `parquet:"seq"`
	}](filepath.Join(dir, "trials.parquet")); err != nil || len(rows) != 1 {
		t.Errorf("%v, %v", rows, err)
	}
}

// TestParquetInPandas reads the files with pandas, if pandas is installed.
func TestParquetInPandas(t *testing.T) {
	python := os.Getenv("VITRINE_TEST_PYTHON")
	if python == "" {
		python = "python3"
	}
	if err := exec.Command(python, "-c", "import pandas, pyarrow").Run(); err != nil {
		t.Skip(&vitrine.Unsupported{What: "reading Parquet with pandas", Missing: "Python with pandas and pyarrow", Do: "name one in VITRINE_TEST_PYTHON"})
	}
	dir := t.TempDir()
	watched(t, dir)
	const script = `
import sys, json, pandas as pd
d = sys.argv[1]
t, u, c = pd.read_parquet(d + "/trials.parquet"), pd.read_parquet(d + "/usage.parquet"), pd.read_csv(d + "/trials.csv", keep_default_na=True)
assert list(t.columns) == list(c.columns), (list(t.columns), list(c.columns))
for name in ("seq", "rate", "duration_s", "scheduled", "success_ratio", "latency_p99_ms", "valid"):
    pd.testing.assert_series_equal(t[name], c[name], check_dtype=False)
print(json.dumps([len(t), len(u), u.groupby("component").cpu.sum().to_dict(), int(u.cpu.isna().sum())]))
`
	out, err := exec.Command(python, "-c", script, dir).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var got, want any
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want = `[3, 3, {"bono": 0.125, "host": 0.5}, 1]`
	if strings.TrimSpace(string(out)) != want {
		t.Errorf("pandas reads %s, want %s", out, want)
	}
}

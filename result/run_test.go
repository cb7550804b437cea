package result_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"vitrine"
	"vitrine/result"
)

func manifest() result.Manifest {
	return result.Manifest{
		Tool: "vitrine test", Command: []string{"vitrine", "characterize"}, VNF: "ims", Unit: "calls/s",
		Started:    time.Date(2024, 3, 1, 12, 0, 0, 0, time.UTC),
		Thresholds: []float64{0.9, 0.8},
		Specs:      []result.Spec{result.NewSpec("workload", "w.yaml", []byte("rate: 1\n"))},
	}
}

func second(succeeded int64) vitrine.Second {
	return vitrine.Second{Scheduled: 50, Offered: 50, Succeeded: succeeded, Failed: 50 - succeeded}
}

func outcome(seq int) vitrine.Outcome {
	cpu := 0.25
	return vitrine.Outcome{
		Key:       vitrine.Key{Seq: seq, Attempt: 1, Substrate: "process", Options: "pinning=on", Subject: "bn1s-sp1s", Repeat: 1, Rate: 50.5 * float64(seq)},
		Duration:  3 * time.Second,
		Scheduled: 150, Offered: 150, Succeeded: 149,
		Failed:  map[string]int64{"timeout": 1},
		Latency: vitrine.Latency{P50: 1.25, P95: 3, P99: 12.125},
		Seconds: []vitrine.Second{second(50), second(49), second(50)},
		Use: map[string]vitrine.Use{"bono-1": {
			Component: "bono", CPU: &cpu, VCPUs: 0.5,
			Missing: map[string]string{"memory": "no controller"},
		}},
		Valid: true, Reason: `one "odd", call`, Accelerator: "kvm",
		Host:     &vitrine.HostReading{Before: 0.75, During: 0.5, Other: new(0.0123456)},
		Sampling: &vitrine.Sampling{Gaps: 1, Longest: 2.1}, Late: 520 * time.Millisecond,
	}
}

func create(t *testing.T, dir string) *result.Run {
	t.Helper()
	r, err := result.Create(dir, manifest())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func reopen(t *testing.T, dir string) *result.Run {
	t.Helper()
	r, err := result.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func appendAll(t *testing.T, r *result.Run, seqs ...int) {
	t.Helper()
	for _, seq := range seqs {
		if err := r.Append(outcome(seq)); err != nil {
			t.Fatal(err)
		}
	}
}

func read(t *testing.T, elem ...string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func write(t *testing.T, text []byte, elem ...string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(elem...), text, 0o644); err != nil {
		t.Fatal(err)
	}
}

func closed(t *testing.T, r *result.Run) {
	t.Helper()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}

func wantError(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error; want one with %q", words)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not contain %q", err, w)
		}
	}
}

func TestOutcomesComeBackAsTheyWere(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "run")
	r := create(t, dir)
	appendAll(t, r, 1, 2)
	closed(t, r)

	want := []vitrine.Outcome{outcome(1), outcome(2)}
	again := reopen(t, dir)
	if got := again.Outcomes(); !reflect.DeepEqual(got, want) {
		t.Errorf("Open gives\n%+v\nwant\n%+v", got, want)
	}
	if len(again.Repairs()) != 0 {
		t.Errorf("Open repaired an intact run: %q", again.Repairs())
	}
	if got, ok := again.Find(outcome(2).Key); !ok || !reflect.DeepEqual(got, want[1]) {
		t.Errorf("Find returns %+v, %v", got, ok)
	}
	other := outcome(2).Key
	other.Rate++
	if _, ok := again.Find(other); ok {
		t.Error("Find returns a trial of another rate")
	}
	d, err := result.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(d.Outcomes, want) || len(d.Warnings) != 0 || d.Summary != nil {
		t.Errorf("Load returns %+v", d)
	}
	if d.Manifest.Tool != "vitrine test" || d.Manifest.Schema != result.Schema || d.Manifest.Specs[0].Text != "rate: 1\n" {
		t.Errorf("manifest %+v", d.Manifest)
	}
}

func TestTableHasTheContractsColumns(t *testing.T) {
	dir := t.TempDir()
	r := create(t, dir)
	appendAll(t, r, 1)
	dead := vitrine.Outcome{
		Key:    vitrine.Key{Seq: 2, Attempt: 3, Substrate: "qemu", Subject: "bn1s", Repeat: 2, Rate: 1e6},
		Reason: "the generator crashed:\nexit status 1", Accelerator: vitrine.Emulation,
	}
	if err := r.Append(dead); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(bytes.NewReader(read(t, dir, "trials.csv"))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"seq,attempt,substrate,options,sizing,repeat,rate,duration_s,scheduled,offered,succeeded,failed,success_ratio,latency_p50_ms,latency_p95_ms,latency_p99_ms,valid,reason,accelerator," +
			"host_steal_cpus,host_other_cpus,host_speed_before_ratio,host_speed_during_ratio,host_speed_after_ratio,sampling_longest_s,sampling_gaps,generator_late_s",
		`1|1|process|pinning=on|bn1s-sp1s|1|50.5|3|150|150|149|1|0.993333|1.25|3|12.125|true|one "odd", call|kvm|0|0.012346|0.75|0.5||2.1|1|0.52`,
		"2|3|qemu||bn1s|2|1000000|0|0|0|0|0|||||false|the generator crashed:\nexit status 1|tcg||||||||",
	}
	got := []string{strings.Join(rows[0], ","), strings.Join(rows[1], "|"), strings.Join(rows[2], "|")}
	if !slices.Equal(got, want) {
		t.Errorf("trials.csv is\n%q\nwant\n%q", got, want)
	}
}

// TestGuideExplainsColumns checks that docs/results.md has every column of the tables.
func TestGuideExplainsColumns(t *testing.T) {
	guide := string(read(t, "..", "docs", "results.md"))
	for _, column := range strings.Split(result.TableHeader+","+result.UsageHeader, ",") {
		if !strings.Contains(guide, "`"+column+"`") {
			t.Errorf("docs/results.md does not explain the column %s", column)
		}
	}
}

func TestCreateRefusesFoldersWithContent(t *testing.T) {
	dir := t.TempDir()
	write(t, []byte("mine"), dir, "thesis.doc")
	_, err := result.Create(dir, manifest())
	wantError(t, err, "not empty", "thesis.doc", "--out")
	if !vitrine.IsBadInput(err) {
		t.Errorf("a folder with a file: got %v, want bad input", err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("the folder was written to: %v", entries)
	}

	run := t.TempDir()
	closed(t, create(t, run))
	_, err = result.Create(run, manifest())
	wantError(t, err, "--resume")
}

func TestCreateAcceptsFolderOfAKilledCreate(t *testing.T) {
	dir := t.TempDir()
	write(t, nil, dir, "outcomes.jsonl")
	write(t, []byte("seq"), dir, ".trials.csv.12.tmp")
	write(t, []byte(result.TableHeader+"\n"), dir, "trials.csv")
	write(t, []byte("{"), dir, ".manifest.json.123.tmp")
	appendAll(t, create(t, dir), 1)
	if left, err := filepath.Glob(filepath.Join(dir, ".*.tmp")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}

	dir = t.TempDir()
	write(t, []byte(result.TableHeader+"\n1,1\n"), dir, "trials.csv")
	_, err := result.Create(dir, manifest())
	wantError(t, err, "not empty", "trials.csv")
}

// TestOpenRemovesUnfinishedFiles checks that the temporary files of a killed process go, and that
// files of others stay.
func TestOpenRemovesUnfinishedFiles(t *testing.T) {
	dir := t.TempDir()
	closed(t, create(t, dir))
	for _, name := range []string{".usage.parquet.1.tmp", ".summary.json.2.tmp", ".report.html.3.tmp", "usage.parquet.tmp"} {
		write(t, nil, dir, name)
	}
	r := reopen(t, dir)
	left, err := filepath.Glob(filepath.Join(dir, "*.tmp"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range left {
		left[i] = filepath.Base(left[i])
	}
	if want := []string{".report.html.3.tmp", "usage.parquet.tmp"}; !slices.Equal(left, want) || len(r.Repairs()) != 2 {
		t.Errorf("left are %q, want %q; the repairs are %q", left, want, r.Repairs())
	}
}

func TestOpenNeedsARun(t *testing.T) {
	_, err := result.Open(t.TempDir())
	wantError(t, err, "no run to continue", "--resume")
	_, err = result.Load(filepath.Join(t.TempDir(), "nothing"))
	wantError(t, err, "holds no run")
}

// TestOpenNeedsTheJournal checks that a run without outcomes.jsonl, as in a backup without its largest
// file, stays as it is.
func TestOpenNeedsTheJournal(t *testing.T) {
	dir := t.TempDir()
	r := create(t, dir)
	appendAll(t, r, 1)
	closed(t, r)
	table, journal := read(t, dir, "trials.csv"), filepath.Join(dir, "outcomes.jsonl")
	if err := os.Remove(journal); err != nil {
		t.Fatal(err)
	}
	_, err := result.Open(dir)
	wantError(t, err, dir, "no outcomes.jsonl", "restore that file", "--out")
	if !vitrine.IsBadInput(err) {
		t.Errorf("got %v, want bad input", err)
	}
	if _, err := os.Stat(journal); !errors.Is(err, fs.ErrNotExist) || !bytes.Equal(read(t, dir, "trials.csv"), table) {
		t.Errorf("Open changed the folder: outcomes.jsonl: %v", err)
	}
}

// TestGuardRefusesTrials checks that a trial can neither begin nor be recorded if the guard refuses it.
func TestGuardRefusesTrials(t *testing.T) {
	r := create(t, t.TempDir())
	appendAll(t, r, 1)
	replaced := errors.New("replaced")
	r.Guard = func() error { return replaced }
	if err := r.CheckNew(outcome(2).Key); !errors.Is(err, replaced) {
		t.Errorf("CheckNew returns %v", err)
	}
	if err := r.Append(outcome(2)); !errors.Is(err, replaced) || len(r.Outcomes()) != 1 {
		t.Errorf("Append returns %v; the run has %d trials", err, len(r.Outcomes()))
	}
}

func TestAnotherSchemaIsRefused(t *testing.T) {
	dir := t.TempDir()
	closed(t, create(t, dir))
	text := bytes.Replace(read(t, dir, "manifest.json"), []byte(`"schema": 1`), []byte(`"schema": 7`), 1)
	write(t, text, dir, "manifest.json")
	_, err := result.Open(dir)
	wantError(t, err, "schema 7", "schema 1", "vitrine test")
	_, err = result.Load(dir)
	wantError(t, err, "schema 7")
	write(t, []byte("not json"), dir, "manifest.json")
	_, err = result.Load(dir)
	wantError(t, err, "not a manifest")
}

func TestTwoRunsCannotWriteOneFolder(t *testing.T) {
	dir := t.TempDir()
	r := create(t, dir)
	appendAll(t, r, 1)
	if _, err := result.Open(dir); !errors.Is(err, result.ErrLocked) {
		t.Fatalf("a second Open returns %v", err)
	}
	if d, err := result.Load(dir); err != nil || len(d.Outcomes) != 1 {
		t.Errorf("Load beside the writer returns %v, %v", d, err)
	}
	closed(t, r)
	reopen(t, dir)
}

func TestATrialIsWrittenOnce(t *testing.T) {
	r := create(t, t.TempDir())
	appendAll(t, r, 1)
	wantError(t, r.Append(outcome(1)), "trial 1 attempt 1", "already")
	other := outcome(1)
	other.Subject = "bn9s"
	wantError(t, r.Append(other), "as another trial", "bn9s")
	err := r.CheckNew(other.Key)
	wantError(t, err, "as another trial", "continue it with vitrine test")
	if !errors.Is(err, result.ErrDiverged) || !vitrine.IsBadInput(err) {
		t.Errorf("CheckNew returns %v", err)
	}
	if err := r.CheckNew(outcome(2).Key); err != nil {
		t.Errorf("CheckNew refuses a trial that is not on record: %v", err)
	}
	if _, _, err := r.CreateUsage(outcome(1).Key); err == nil {
		t.Error("CreateUsage overwrites the samples of a finished trial")
	}
	if n := len(r.Outcomes()); n != 1 {
		t.Errorf("%d outcomes", n)
	}
	closed(t, r)
	if err := r.Append(outcome(2)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Append after Close returns %v", err)
	}
}

// TestTablesWithFewerColumnsAreRebuilt continues a run whose table is from a version with fewer
// columns.
func TestTablesWithFewerColumnsAreRebuilt(t *testing.T) {
	dir := t.TempDir()
	r := create(t, dir)
	appendAll(t, r, 1)
	closed(t, r)
	table := string(read(t, dir, "trials.csv"))
	header, row, _ := strings.Cut(strings.TrimSuffix(table, "\n"), "\n")
	fewer := func(line string) string { // without the last six columns
		cells := strings.Split(line, ",")
		return strings.Join(cells[:len(cells)-6], ",") + "\n"
	}
	older := fewer(header) + fewer(row)
	write(t, []byte(older), dir, "trials.csv")
	if d, err := result.Load(dir); err != nil || len(d.Outcomes) != 1 || len(d.Warnings) > 0 {
		t.Errorf("Load returns %+v, %v", d, err)
	}
	closed(t, reopen(t, dir))
	if got := string(read(t, dir, "trials.csv")); got != table {
		t.Errorf("trials.csv became\n%s, want\n%s", got, table)
	}
}

// TestTornEndsAreRepaired cuts files as SIGKILL or a crash of the machine may do.
func TestTornEndsAreRepaired(t *testing.T) {
	dir := t.TempDir()
	r := create(t, dir)
	appendAll(t, r, 1, 2)
	closed(t, r)
	journal, table := read(t, dir, "outcomes.jsonl"), read(t, dir, "trials.csv")
	first := bytes.IndexByte(journal, '\n') + 1

	cuts := []int{first, first + 1, first + 2}
	for cut := first + 3; cut < len(journal)-5; cut += 61 {
		cuts = append(cuts, cut)
	}
	for cut := len(journal) - 5; cut <= len(journal); cut++ {
		cuts = append(cuts, cut)
	}
	for _, cut := range cuts {
		write(t, journal[:cut], dir, "outcomes.jsonl")
		write(t, table[:len(table)*cut/len(journal)], dir, "trials.csv")
		want := 1
		if cut >= len(journal)-1 { // the whole outcome without its newline
			want = 2
		}
		r := reopen(t, dir)
		if n := len(r.Outcomes()); n != want {
			t.Fatalf("cut at %d of %d: %d outcomes, want %d", cut, len(journal), n, want)
		}
		if cut < len(journal) && cut != first && len(r.Repairs()) == 0 {
			t.Fatalf("cut at %d: Open repaired the run without a report", cut)
		}
		for seq := want + 1; seq <= 2; seq++ {
			appendAll(t, r, seq)
		}
		closed(t, r)
		if got := read(t, dir, "outcomes.jsonl"); !bytes.Equal(got, journal) {
			t.Fatalf("cut at %d: outcomes.jsonl became\n%s", cut, got)
		}
		if got := read(t, dir, "trials.csv"); !bytes.Equal(got, table) {
			t.Fatalf("cut at %d: trials.csv became\n%s", cut, got)
		}
	}
}

func TestDamagedLineIsKept(t *testing.T) {
	dir := t.TempDir()
	r := create(t, dir)
	appendAll(t, r, 1, 2, 3)
	closed(t, r)
	lines := bytes.SplitAfter(read(t, dir, "outcomes.jsonl"), []byte("\n"))
	lines[1] = []byte("{}\n")
	damaged := bytes.Join(lines, nil)
	write(t, damaged, dir, "outcomes.jsonl")

	_, err := result.Open(dir)
	wantError(t, err, "outcomes.jsonl:2", "correct or remove that line")
	if !bytes.Equal(read(t, dir, "outcomes.jsonl"), damaged) {
		t.Error("Open changed the damaged file")
	}
	d, err := result.Load(dir)
	if err != nil || len(d.Outcomes) != 2 || len(d.Warnings) != 1 || !strings.Contains(d.Warnings[0], "outcomes.jsonl:2") {
		t.Errorf("Load returns %+v, %v", d, err)
	}
}

func TestNaNIsNotWritten(t *testing.T) {
	dir := t.TempDir()
	r := create(t, dir)
	nan := math.NaN()
	o := outcome(1)
	o.Latency.P99 = nan
	o.Use["bono-1"] = vitrine.Use{Component: "bono", CPU: &nan}
	if err := r.Append(o); err != nil {
		t.Fatal(err)
	}
	got := r.Outcomes()[0]
	if u := got.Use["bono-1"]; u.CPU != nil || u.Missing["cpu"] == "" || got.Latency.P99 != 0 {
		t.Errorf("kept %+v", got)
	}
	o = outcome(2)
	o.Rate = math.Inf(1)
	wantError(t, r.Append(o), "rate")

	s := result.Summary{Sizings: []result.Sizing{{Name: "bn1s", Utilization: map[string]float64{"bono": nan}}}}
	wantError(t, r.SaveSummary(s), "bn1s", "utilization of bono")
	if _, err := os.Stat(filepath.Join(dir, "summary.json")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("SaveSummary wrote the summary that it refused: %v", err)
	}
}

func TestSummaryHasTheContractsNames(t *testing.T) {
	dir := t.TempDir()
	r := create(t, dir)
	s := result.Summary{
		VNF: "ims", Unit: "calls/s", Thresholds: []float64{0.9},
		Sizings: []result.Sizing{{
			Name: "bn1s", VCPUs: 0.3, MemoryBytes: 1 << 28, Substrate: "process",
			Capacities: []vitrine.Capacity{{Threshold: 0.9, Rate: 200, Low: 190, High: 215, Censored: vitrine.CensoredNone}},
			Bottleneck: "bono", Trials: 4, LoadSeconds: 12,
		}},
		Optimal: &result.Optimal{Sizing: "bn1s", Why: "most"}, StoppedBecause: "the limit",
	}
	if err := r.SaveSummary(s); err != nil {
		t.Fatal(err)
	}
	want := `{"vnf":"ims","unit":"calls/s","thresholds":[0.9],"sizings":[{"name":"bn1s","vcpus":0.3,"memory_bytes":268435456,` +
		`"substrate":"process","options":"","threshold":0.9,"capacity":200,"capacity_low":190,"capacity_high":215,"capacity_censored":"none",` +
		`"capacities":[{"threshold":0.9,"capacity":200,"capacity_low":190,"capacity_high":215,"capacity_censored":"none"}],` +
		`"bottleneck":"bono","utilization":{},"trials":4,"load_seconds":12}],"path":[],"optimal":{"sizing":"bn1s","why":"most"},` +
		`"invalid_trials":0,"stopped_because":"the limit"}`
	var got bytes.Buffer
	if err := json.Compact(&got, read(t, dir, "summary.json")); err != nil {
		t.Fatal(err)
	}
	if got.String() != want {
		t.Errorf("summary.json is\n%s\nwant\n%s", got.String(), want)
	}
	d, err := result.Load(dir)
	if err != nil || d.Summary == nil || d.Summary.Best().Rate != 200 {
		t.Errorf("Load returns %+v, %v", d, err)
	}
}

func TestLogDirStaysInside(t *testing.T) {
	dir := t.TempDir()
	r := create(t, dir)
	for want, names := range map[string][]string{
		"logs/generator":                 {"generator"},
		"logs/process pinning=on/bn1s/2": {"process pinning=on/bn1s", "2"},
		"logs/mine":                      {"../..", "mine"},
		"logs":                           {""},
	} {
		if got := r.LogDir(names...); got != filepath.Join(dir, want) {
			t.Errorf("LogDir(%q) is %q", names, got)
		}
	}
}

func TestSpecsAreCompared(t *testing.T) {
	m := manifest()
	if err := m.SameSpecs(manifest()); err != nil {
		t.Error(err)
	}
	other := manifest()
	other.Specs = []result.Spec{result.NewSpec("workload", "elsewhere.yaml", []byte("rate: 2\n"))}
	wantError(t, m.SameSpecs(other), "workload", "w.yaml", "elsewhere.yaml")
	other.Specs = nil
	wantError(t, m.SameSpecs(other), "workload")
	wantError(t, other.SameSpecs(m), "workload")
}

// TestKilledRunsLoseNothing kills the writing process again and again. Each new process continues,
// and at the end the run must have every trial once.
func TestKilledRunsLoseNothing(t *testing.T) {
	const trials = 40
	dir := t.TempDir()
	closed(t, create(t, dir))
	for round := 0; ; round++ {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "RESULT_TEST_RUN="+dir, fmt.Sprintf("RESULT_TEST_TRIALS=%d", trials))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// Kill the process while it writes: after it has reported some finished trials.
		promised := make([]byte, 5)
		_, readErr := io.ReadFull(out, promised)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		d, err := result.Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		for i, o := range d.Outcomes {
			if !reflect.DeepEqual(o, outcome(i+1)) {
				t.Fatalf("round %d: outcome %d is %+v", round, i, o)
			}
		}
		if readErr != nil { // fewer than five trials were left
			if len(d.Outcomes) != trials {
				t.Fatalf("%d outcomes, want %d", len(d.Outcomes), trials)
			}
			break
		}
		if len(d.Outcomes) < min(trials, 5*(round+1)) {
			t.Fatalf("round %d: only %d outcomes, fewer than the process reported", round, len(d.Outcomes))
		}
	}
	r := reopen(t, dir)
	rows, err := csv.NewReader(bytes.NewReader(read(t, dir, "trials.csv"))).ReadAll()
	if err != nil || len(rows) != trials+1 || len(r.Outcomes()) != trials {
		t.Errorf("%d rows, %v", len(rows), err)
	}
}

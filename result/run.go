package result

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/internal/durable"
)

// A Run is a run folder that is being written. Only one Run of a folder exists on the machine at a
// time. Its methods may be called from any goroutine.
type Run struct {
	// Guard returns an error if the run may have no more trials, such as after an upgrade of the
	// program that makes them. New runs have one that returns nil. Set it before the first trial.
	Guard func() error

	dir      string
	repaired []string

	mu       sync.Mutex
	manifest Manifest
	original Manifest  // at the end of Create, Open or the last Append
	journal  *appender // outcomes.jsonl; its file has the lock
	table    *appender // trials.csv
	outcomes []vitrine.Outcome
	byKey    map[vitrine.Key]int
	byTrial  map[trial]vitrine.Key
	stale    bool // trials.csv lacks outcomes of outcomes.jsonl
	changed  bool // Close writes the Parquet files
	closed   bool
}

// A trial identifies the files of one trial.
type trial struct{ seq, attempt int }

// Create begins a run in a new or empty folder. It refuses a folder that is not empty or that
// CheckLinks refuses, and leaves that folder unchanged.
func Create(dir string, m Manifest) (*Run, error) {
	if err := CheckLinks(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, advise("making the run folder", err)
	}
	if err := CheckVacant(dir); err != nil {
		return nil, err
	}
	r := newRun(dir)
	if err := r.lock(os.O_CREATE); err != nil {
		return nil, err
	}
	m.Schema = Schema
	err := CheckVacant(dir) // again, now that no other process can be creating it
	if err == nil {
		err = r.begin(m)
	}
	if err != nil {
		r.unlock()
		return nil, err
	}
	return r, nil
}

// CheckVacant returns a *vitrine.BadInput if the folder holds a run or other files, or is a file. The
// folder need not exist. CheckVacant accepts what a killed or failed Create leaves.
func CheckVacant(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, unix.ENOTDIR):
		return &vitrine.BadInput{File: dir, Found: "not a folder", Want: "choose another --out"}
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return advise("reading the run folder", err)
	}
	for _, e := range entries {
		if e.Name() == manifestFile {
			return &vitrine.BadInput{File: dir, Found: "already holds a run", Want: "continue it with --resume, or choose another --out"}
		}
	}
	for _, e := range entries {
		if !leftByCreate(dir, e) {
			return &vitrine.BadInput{File: dir, Found: fmt.Sprintf("not empty, and holds no run (it has %s)", e.Name()), Want: "choose another --out"}
		}
	}
	return nil
}

// leftByCreate reports whether a Create without a manifest may have left the file: an empty
// outcomes.jsonl, a trials.csv without trials, or a temporary file.
func leftByCreate(dir string, e fs.DirEntry) bool {
	info, err := e.Info()
	if err != nil {
		return false
	}
	const header = TableHeader + "\n"
	switch e.Name() {
	case journalFile:
		return info.Size() == 0
	case tableFile:
		if info.Size() != int64(len(header)) {
			return false
		}
		text, err := os.ReadFile(filepath.Join(dir, tableFile))
		return err == nil && string(text) == header
	}
	return isTemporary(e.Name())
}

// isTemporary reports whether the file is a temporary file of durable.Replace for a file of the run
// folder.
func isTemporary(name string) bool {
	of, ok := durable.Unfinished(name)
	return ok && slices.Contains([]string{manifestFile, tableFile, summaryFile, profileFile, trialsParquet, usageParquet}, of)
}

// removeTemporary removes the temporary files that a killed process left. The folder's lock is
// held, so no other process is writing them.
func (r *Run) removeTemporary() error {
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		return advise("reading the run folder", err)
	}
	for _, e := range entries {
		if !isTemporary(e.Name()) {
			continue
		}
		if err := os.Remove(filepath.Join(r.dir, e.Name())); err != nil {
			return advise("removing an unfinished file", err)
		}
		r.repaired = append(r.repaired, e.Name()+": removed, a killed process did not finish it")
	}
	return nil
}

// begin writes the first files. It writes the manifest last, because the manifest makes the folder
// a run.
func (r *Run) begin(m Manifest) error {
	r.original = m
	if err := r.removeTemporary(); err != nil {
		return err
	}
	if err := r.rewriteTable(); err != nil {
		return err
	}
	return r.SaveManifest(m)
}

// Open continues a run. It repairs files that a killed process left incomplete, and Repairs lists
// the repairs. The error is ErrLocked if another process is writing the run. Open refuses a
// manifest with another schema, a folder that CheckLinks refuses, and one without outcomes.jsonl: no
// killed process leaves that, and a repair would empty the other files.
func Open(dir string) (*Run, error) {
	if err := CheckLinks(dir); err != nil {
		return nil, err
	}
	m, err := readManifest(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s holds no run to continue (no %s in it): start it without --resume", dir, manifestFile)
	} else if err != nil {
		return nil, err
	}
	r := newRun(dir)
	if err := r.lock(0); errors.Is(err, fs.ErrNotExist) {
		return nil, &vitrine.BadInput{File: dir, Found: "no " + journalFile + ", which has the trials", Want: "restore that file, or begin another run with another --out"}
	} else if err != nil {
		return nil, err
	}
	r.manifest, r.original = m, m
	if err := r.recover(); err != nil {
		r.unlock()
		return nil, err
	}
	return r, nil
}

func newRun(dir string) *Run {
	return &Run{Guard: func() error { return nil }, dir: dir, byKey: map[vitrine.Key]int{}, byTrial: map[trial]vitrine.Key{}}
}

// lock opens outcomes.jsonl and takes the folder's lock. The kernel releases the lock when the
// process ends, however it ends. create is os.O_CREATE or 0.
func (r *Run) lock(create int) error {
	path := filepath.Join(r.dir, journalFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|unix.O_NOFOLLOW|create, 0o644)
	if err != nil {
		return advise("opening "+path, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close() // nothing was written
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = fmt.Errorf("%w: wait for it, or choose another --out", ErrLocked)
		}
		return fmt.Errorf("%s: %w", r.dir, err)
	}
	r.journal = &appender{file: f}
	return nil
}

// unlock releases a folder in which this Run has written nothing.
func (r *Run) unlock() {
	_ = r.journal.file.Close()
	if r.table != nil {
		_ = r.table.file.Close()
	}
}

// recover reads the folder and repairs it. It removes unfinished files, cuts a torn last line off
// outcomes.jsonl and makes trials.csv match it.
func (r *Run) recover() error {
	if err := r.removeTemporary(); err != nil {
		return err
	}
	path := filepath.Join(r.dir, journalFile)
	data, err := os.ReadFile(path)
	if err != nil {
		return advise("reading "+path, err)
	}
	j, err := readJournal(data, nil)
	if err != nil {
		return fmt.Errorf("%s: %w; correct or remove that line", r.dir, err)
	}
	r.journal.size = j.whole
	if j.torn > 0 {
		if err := r.journal.rewind(); err != nil {
			return advise("removing an incomplete last line of "+path, err)
		}
		r.repaired = append(r.repaired, fmt.Sprintf("%s: removed an incomplete last line of %d bytes", journalFile, j.torn))
	}
	if j.unended {
		if err := r.journal.append([]byte("\n")); err != nil {
			return advise("ending the last line of "+path, err)
		}
		r.repaired = append(r.repaired, journalFile+": ended the last line")
	}
	for _, o := range j.outcomes {
		if err := r.checkDistinct(o.Key); err != nil {
			return fmt.Errorf("%s: %s: %w; remove one of them", r.dir, journalFile, err)
		}
		r.remember(o)
	}
	return r.mendTable()
}

// mendTable rebuilds trials.csv if it does not match the outcomes.
func (r *Run) mendTable() error {
	want, err := formatTable(r.outcomes)
	if err != nil {
		return err
	}
	have, err := os.ReadFile(filepath.Join(r.dir, tableFile))
	if err == nil && bytes.Equal(have, want) {
		return r.openTable()
	}
	r.repaired = append(r.repaired, tableFile+": rebuilt from "+journalFile)
	return r.rewriteTable()
}

func (r *Run) rewriteTable() error {
	text, err := formatTable(r.outcomes)
	if err != nil {
		return err
	}
	if err := replaceText(filepath.Join(r.dir, tableFile), text); err != nil {
		return err
	}
	r.stale = false
	return r.openTable()
}

func (r *Run) openTable() error {
	if r.table != nil {
		_ = r.table.file.Close() // replaced; all of it is on disk
	}
	path := filepath.Join(r.dir, tableFile)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|unix.O_NOFOLLOW, 0)
	if err != nil {
		return advise("opening "+path, err)
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return advise("reading "+path, err)
	}
	r.table = &appender{file: f, size: info.Size()}
	return nil
}

// Dir returns the run folder.
func (r *Run) Dir() string { return r.dir }

// Repairs lists what Open repaired, and the unfinished files that Create removed, one line each.
func (r *Run) Repairs() []string { return r.repaired }

// Manifest returns the folder's manifest.
func (r *Run) Manifest() Manifest {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.manifest
}

// SaveManifest replaces the manifest atomically.
func (r *Run) SaveManifest(m Manifest) error {
	m.Schema = Schema
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed = true // also if no trial follows: a killed process may have left no Parquet files
	if err := saveJSON(filepath.Join(r.dir, manifestFile), m); err != nil {
		return err
	}
	r.manifest = m
	return nil
}

// SaveSummary replaces summary.json atomically. It refuses a summary with a NaN or infinity and
// names that number.
func (r *Run) SaveSummary(s Summary) error {
	if err := s.check(); err != nil {
		return err
	}
	return saveJSON(filepath.Join(r.dir, summaryFile), s)
}

func saveJSON(path string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return replaceText(path, append(text, '\n'))
}

// Outcomes returns the trials so far, in the order in which they were appended.
func (r *Run) Outcomes() []vitrine.Outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.outcomes)
}

// Find returns the outcome of a finished trial.
func (r *Run) Find(key vitrine.Key) (vitrine.Outcome, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i, ok := r.byKey[key]
	if !ok {
		return vitrine.Outcome{}, false
	}
	return r.outcomes[i], true
}

// Attempts looks up the attempts at a trial. Their keys differ only in the attempt. It returns how
// many were made, the outcome of the last one, and whether the trial is done. It is done if the
// last attempt was valid or if most attempts were made. Disturbed attempts do not count towards
// most.
func (r *Run) Attempts(key vitrine.Key, most int) (made int, last vitrine.Outcome, done bool) {
	for counted := 0; counted < most; {
		key.Attempt = made + 1
		o, ok := r.Find(key)
		if !ok {
			return made, last, false
		}
		if made, last = made+1, o; o.Valid {
			break
		}
		if !o.Disturbed {
			counted++
		}
	}
	return made, last, true
}

// Append adds a finished trial and returns once the trial is on disk. If it fails, the older
// trials stay intact. It refuses a trial (seq and attempt) that the run already has, and one that
// Guard does not allow.
func (r *Run) Append(o vitrine.Outcome) error {
	if err := r.Guard(); err != nil {
		return err
	}
	o = clean(o)
	if err := checkOutcome(o); err != nil {
		return fmt.Errorf("%s: not written: %w", journalFile, err)
	}
	line, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("trial %d attempt %d: %w", o.Seq, o.Attempt, err)
	}
	row, err := formatRow(o)
	if err != nil {
		return fmt.Errorf("trial %d attempt %d: %w", o.Seq, o.Attempt, err)
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return fmt.Errorf("%s: the run is closed: %w", r.dir, os.ErrClosed)
	}
	if err := r.checkDistinct(o.Key); err != nil {
		return fmt.Errorf("%s: %w", r.dir, err)
	}
	if err := r.journal.append(append(line, '\n')); err != nil {
		return advise(fmt.Sprintf("writing trial %d attempt %d to %s", o.Seq, o.Attempt, filepath.Join(r.dir, journalFile)), err)
	}
	r.remember(o)
	r.changed, r.original = true, r.manifest
	if r.stale {
		return r.rewriteTable()
	}
	if err := r.table.append(row); err != nil {
		r.stale = true
		return advise(fmt.Sprintf("writing trial %d attempt %d to %s (the trial is in %s)", o.Seq, o.Attempt, filepath.Join(r.dir, tableFile), journalFile), err)
	}
	return nil
}

func (r *Run) checkDistinct(key vitrine.Key) error {
	old, ok := r.byTrial[trial{key.Seq, key.Attempt}]
	switch {
	case !ok:
		return nil
	case old == key:
		return fmt.Errorf("trial %d attempt %d is already recorded", key.Seq, key.Attempt)
	}
	return fmt.Errorf("trial %d attempt %d is already recorded, as another trial (%s repeat %d at %v, now %s repeat %d at %v)",
		key.Seq, key.Attempt, old.Subject, old.Repeat, old.Rate, key.Subject, key.Repeat, key.Rate)
}

func (r *Run) remember(o vitrine.Outcome) {
	r.byKey[o.Key] = len(r.outcomes)
	r.byTrial[trial{o.Seq, o.Attempt}] = o.Key
	r.outcomes = append(r.outcomes, o)
}

// LogDir returns a folder below logs/, which need not exist yet: LogDir("generator"),
// LogDir(sizing, "1"). Whatever the names, the folder is inside logs/.
func (r *Run) LogDir(names ...string) string {
	inside := filepath.Clean("/" + filepath.Join(names...))
	return filepath.Join(r.dir, logsFolder, inside)
}

// Close releases the folder. Before, it writes the Parquet files, unless this process has changed
// nothing: reading all samples may take minutes. It may be called more than once. If it fails, the
// other files are still intact.
func (r *Run) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	r.closed = true
	var errs []error
	if r.stale {
		errs = append(errs, r.rewriteTable())
	}
	if r.changed {
		errs = append(errs, writeParquet(r.dir, r.outcomes))
	}
	errs = append(errs, r.table.file.Close(), r.journal.file.Close())
	return errors.Join(errs...)
}

// An appender appends a whole line to a file, or nothing.
type appender struct {
	file   *os.File
	size   int64 // length of the intact part, in bytes
	failed error // the file may end in an incomplete line, so nothing more is appended
}

// append returns once the line is on disk.
func (a *appender) append(line []byte) error {
	if a.failed != nil {
		return a.failed
	}
	_, err := a.file.Write(line)
	if err == nil {
		err = a.file.Sync()
	}
	if err != nil {
		if cut := a.rewind(); cut != nil {
			a.failed = fmt.Errorf("cut off an incomplete line: %w", cut)
		}
		return errors.Join(err, a.failed)
	}
	a.size += int64(len(line))
	return nil
}

// rewind cuts off an incomplete line. Shrinking a file works on a full disk too.
func (a *appender) rewind() error {
	if err := a.file.Truncate(a.size); err != nil {
		return err
	}
	return a.file.Sync()
}

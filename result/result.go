// Package result keeps a campaign's measurements in one folder, the run folder, so that nothing
// measured is lost. outcomes.jsonl is authoritative, with one vitrine.Outcome per line. The other
// files are derived from it or add to it.
//
//	manifest.json                   where the numbers come from (Manifest)
//	outcomes.jsonl                  one vitrine.Outcome per line, in the order of the trials
//	trials.csv                      the same as a flat table
//	usage/<seq>-<attempt>.csv       the monitor's samples of one trial
//	trials.parquet, usage.parquet   both as Parquet, once the run is closed
//	summary.json                    the result of the campaign (Summary)
//	profile.json                    what every size carries, for searches that predict (vitrine.Profile)
//	logs/                           of every instance and generator
//
// Create and Open return the only writer of a folder. Load reads a folder for reports, also while
// it is being written.
package result

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Names of the files of a run folder.
const (
	manifestFile = "manifest.json"
	journalFile  = "outcomes.jsonl"
	tableFile    = "trials.csv"
	summaryFile  = "summary.json"
	profileFile  = "profile.json"
	usageFolder  = "usage"
	logsFolder   = "logs"

	trialsParquet = "trials.parquet"
	usageParquet  = "usage.parquet"
)

// ErrLocked is wrapped in the error of opening a run that another process writes.
var ErrLocked = errors.New("another vitrine process is writing to this run")

// advise adds to a file system error what the user can do about it.
func advise(action string, err error) error {
	if err == nil {
		return nil
	}
	do := ""
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		do = ": what was measured before is kept; free some space, then continue with --resume"
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		do = ": choose a folder that you may write to (--out)"
	}
	return fmt.Errorf("%s: %w%s", action, err, do)
}

// replace writes a file atomically: it writes a temporary file beside it, syncs that to disk, and
// renames it over the old file.
func replace(path string, write func(*os.File) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.tmp")
	if err != nil {
		return advise("writing "+path, err)
	}
	defer func() {
		if err != nil {
			// The file may be closed already. Only its removal matters.
			_ = f.Close()
			_ = os.Remove(f.Name())
			err = advise("writing "+path, err)
		}
	}()
	if err := write(f); err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(path))
}

func replaceText(path string, text []byte) error {
	return replace(path, func(f *os.File) error {
		_, err := f.Write(text)
		return err
	})
}

// syncFolder makes the names in a folder survive a crash of the machine.
func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }() // opened for reading
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) {
		return err // EINVAL: a file system that cannot sync folders
	}
	return nil
}

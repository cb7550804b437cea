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
	"io"
	"io/fs"
	"syscall"

	"vitrine/internal/durable"
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

// ErrLocked is wrapped in the error of Open if another process writes the run.
var ErrLocked = errors.New("another vitrine process is writing to this run")

// advise adds to a file system error what the user can do about it.
func advise(action string, err error) error {
	if err == nil {
		return nil
	}
	do := ""
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		do = ": earlier measurements are kept; free some space, then continue with --resume"
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		do = ": choose a folder that you may write to (--out)"
	}
	return fmt.Errorf("%s: %w%s", action, err, do)
}

// replace writes a file atomically and durably.
func replace(path string, write func(io.Writer) error) error {
	return advise("writing "+path, durable.ReplaceFrom(path, 0o644, write))
}

func replaceText(path string, text []byte) error {
	return advise("writing "+path, durable.Replace(path, text, 0o644))
}

package result

import (
	"errors"
	"fmt"

	"vitrine"
)

// ErrDiverged is wrapped in the error of CheckNew for another trial on record.
var ErrDiverged = errors.New("this build of vitrine chooses other trials than the run has")

// CheckNew returns an error if Guard does not allow a trial, or if the run already has one with the
// key's seq and attempt. Call it before a trial that Find does not find: a resumed run may have
// another trial in its place, which another build chose.
func (r *Run) CheckNew(key vitrine.Key) error {
	if err := r.Guard(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.checkDistinct(key)
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrDiverged, &vitrine.BadInput{
		File: r.dir, Found: err.Error(),
		Want: fmt.Sprintf("continue it with %s, with which it began, or begin a new run", r.manifest.Tool),
	})
}

// RestoreManifest undoes all changes of the manifest since Create, Open or the last Append.
func (r *Run) RestoreManifest() error { return r.SaveManifest(r.original) }

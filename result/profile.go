package result

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"vitrine"
)

// SaveProfile writes profile.json, whole or not at all.
func (r *Run) SaveProfile(p vitrine.Profile) error {
	return saveJSON(filepath.Join(r.dir, profileFile), p)
}

// Profile is the folder's profile so far; nil: there is none.
func (r *Run) Profile() (*vitrine.Profile, error) {
	text, err := os.ReadFile(filepath.Join(r.dir, profileFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, advise("reading "+profileFile, err)
	}
	p, err := vitrine.ParseProfile(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", profileFile, err)
	}
	return p, nil
}

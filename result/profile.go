package result

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"vitrine"
)

// SaveProfile writes profile.json atomically.
func (r *Run) SaveProfile(p vitrine.Profile) error {
	return saveJSON(filepath.Join(r.dir, profileFile), p)
}

// Profile returns the folder's profile; nil if there is none yet.
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

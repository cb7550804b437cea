package runs

import (
	"errors"
	"fmt"
	"os"
)

// RemoveRecorded removes the files and folders whose paths dead runs recorded
// under a kind, and the records. It gives the paths of those that were there;
// what is inside them must not be in use any more.
func RemoveRecorded(root, kind string) (removed []string, err error) {
	dead, err := Dead(root)
	if err != nil {
		return nil, err
	}
	for _, id := range dead {
		records, err := Records(root, id, kind)
		if err != nil {
			return removed, err
		}
		for name, value := range records {
			path := string(value)
			_, missing := os.Lstat(path)
			if err := errors.Join(os.RemoveAll(path), Erase(root, id, kind, name)); err != nil {
				return removed, fmt.Errorf("cleaning after run %s: %w", id, err)
			}
			if missing == nil {
				removed = append(removed, path)
			}
		}
	}
	return removed, nil
}

package runs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// EachDead has a back end clean up after every dead run, also when that fails
// for one of them. It gives what was removed of all.
func EachDead(root string, clean func(id string) (removed []string, err error)) (removed []string, err error) {
	dead, err := Dead(root)
	for _, id := range dead {
		some, failed := clean(id)
		removed = append(removed, some...)
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("cleaning after run %s: %w", id, failed))
		}
	}
	return removed, err
}

// Undo has what a dead run recorded under a kind be undone, and the records
// erased of which it was. undo says what it removed, or nothing when nothing
// was left.
func Undo(root, id, kind string, undo func(name string, value []byte) (removed string, err error)) (removed []string, err error) {
	records, err := Records(root, id, kind)
	for name, value := range records {
		what, failed := undo(name, value)
		if failed == nil {
			failed = Erase(root, id, kind, name)
		}
		if what != "" {
			removed = append(removed, what)
		}
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("%s %s: %w", kind, name, failed))
		}
	}
	return removed, err
}

// RemoveRecorded removes the files and folders whose paths dead runs recorded
// under a kind, and the records. It gives the paths of those that were there;
// what is inside them must not be in use any more.
func RemoveRecorded(root, kind string) (removed []string, err error) {
	return EachDead(root, func(id string) ([]string, error) {
		return Undo(root, id, kind, func(_ string, value []byte) (string, error) {
			path := string(value)
			if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
				return "", nil
			}
			return path, os.RemoveAll(path)
		})
	})
}

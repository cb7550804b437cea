package runstate

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
			err = errors.Join(err, &uncleaned{id, failed})
		}
	}
	return removed, err
}

// uncleaned is an error of cleaning after one run.
type uncleaned struct {
	run string
	err error
}

func (u *uncleaned) Error() string { return fmt.Sprintf("cleaning after run %s: %v", u.run, u.err) }
func (u *uncleaned) Unwrap() error { return u.err }

// Uncleaned says of which dead runs errors of cleaning are, if of no other thing.
func Uncleaned(err error) (ids []string, others bool) {
	switch e := err.(type) { //nolint:errorlint // all of the tree is looked through
	case nil:
		return nil, false
	case *uncleaned:
		return []string{e.run}, false
	case interface{ Unwrap() error }:
		return Uncleaned(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			some, other := Uncleaned(one)
			ids, others = append(ids, some...), others || other
		}
		return ids, others
	}
	return nil, true
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

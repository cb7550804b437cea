package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"vitrine"
)

// A Cache is the folder of what is made once and used often: kernels, guest
// bases, images. Several processes may use it at a time.
type Cache struct {
	Dir string // absolute
}

// CacheEnv names the folder when nobody else does.
const CacheEnv = "VITRINE_CACHE"

// FindCache is the cache in the folder that was named or, when none was, in
// that of VITRINE_CACHE, else in "vitrine" of XDG_CACHE_HOME, else in that of
// ~/.cache. Nothing is made yet.
func FindCache(named string, getenv func(string) string) (Cache, error) {
	dir := named
	if dir == "" {
		dir = getenv(CacheEnv)
	}
	if base := getenv("XDG_CACHE_HOME"); dir == "" && base != "" {
		dir = filepath.Join(base, "vitrine")
	}
	if home := getenv("HOME"); dir == "" && home != "" {
		dir = filepath.Join(home, ".cache", "vitrine")
	}
	if dir == "" {
		return Cache{}, &vitrine.BadInput{File: "cache", Found: "no folder: neither " + CacheEnv + " nor XDG_CACHE_HOME nor HOME is set", Want: "name one by --cache"}
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Cache{}, fmt.Errorf("finding the cache: %w", err)
	}
	return Cache{Dir: dir}, nil
}

var entryPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.+-]{0,127}$`)

// Once gives the folder <kind>/<key> of the cache, which fill fills if it is
// not there. One process makes it while the others wait for that, or for the
// end of ctx; they see all of it or nothing, also when the process that makes
// it is killed. fill is given an empty folder beside the final one, on the same
// file system, that is renamed when it returns nil and removed when not: what
// is put there must not hold that path.
func (c Cache) Once(ctx context.Context, kind, key string, fill func(ctx context.Context, dir string) error) (string, error) {
	if !entryPattern.MatchString(kind) || !entryPattern.MatchString(key) {
		return "", fmt.Errorf("cache: %q of kind %q: not a name", key, kind)
	}
	final := filepath.Join(c.Dir, kind, key)
	if _, err := os.Stat(final); err == nil {
		return final, nil
	}
	unlock, err := c.lock(ctx, kind, key)
	if err != nil {
		return "", fmt.Errorf("cache %s: %w", final, err)
	}
	defer unlock()
	if _, err := os.Stat(final); err == nil { // somebody else has just made it
		return final, nil
	}
	work := c.work(kind, key)
	if err := remove(work); err != nil { // of a process that was killed
		return "", fmt.Errorf("cache: %w", err)
	}
	if err := os.Mkdir(work, 0o755); err != nil {
		return "", fmt.Errorf("cache: %w", err)
	}
	err = fill(ctx, work)
	if err == nil {
		err = os.Rename(work, final)
	}
	if err != nil {
		return "", errors.Join(err, remove(work))
	}
	return final, nil
}

// mountNames undoes how the kernel writes the names of mount points.
var mountNames = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// remove removes a folder, but nothing of what is mounted below it: that is
// detached. Programs that are killed may leave the like.
func remove(dir string) error {
	path, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	mounts, err := procfs.GetMounts()
	if err != nil {
		return err
	}
	for _, m := range slices.Backward(mounts) {
		point := mountNames.Replace(m.MountPoint)
		if !strings.HasPrefix(point, path+"/") {
			continue
		}
		if err := unix.Unmount(point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return &fs.PathError{Op: "unmount", Path: point, Err: err}
		}
	}
	return os.RemoveAll(dir)
}

// work is the folder that <kind>/<key> is before it is made, and while it is removed.
func (c Cache) work(kind, key string) string { return filepath.Join(c.Dir, kind, "."+key+".new") }

// Drop removes <kind>/<key>, all at once for who looks for it; one that is not
// there is no error.
func (c Cache) Drop(ctx context.Context, kind, key string) error {
	if !entryPattern.MatchString(kind) || !entryPattern.MatchString(key) {
		return fmt.Errorf("cache: %q of kind %q: not a name", key, kind)
	}
	final := filepath.Join(c.Dir, kind, key)
	if _, err := os.Stat(final); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	unlock, err := c.lock(ctx, kind, key)
	if err != nil {
		return fmt.Errorf("cache %s: %w", final, err)
	}
	defer unlock()
	work := c.work(kind, key)
	if err := remove(work); err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	if err := os.Rename(final, work); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cache: %w", err)
	}
	return remove(work)
}

// lock waits for the lock of <kind>/<key>. The kernel lets go of it however its
// process ends.
func (c Cache) lock(ctx context.Context, kind, key string) (unlock func(), err error) {
	dir := filepath.Join(c.Dir, kind)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, "."+key+".lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock: %w", err), f.Close())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("waiting for another process that makes it: %w", context.Cause(ctx)), f.Close())
		}
	}
}

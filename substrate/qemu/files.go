package qemu

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/substrate/qemu/guest"
)

// A mirror keeps files of the host the same in a machine, under the same paths:
// the instance's folder, and what commands are run from.
type mirror struct {
	mu    sync.Mutex
	known map[string]stamp // by path: as it was when it was copied
}

// A stamp tells a file from its later self, and a folder from one that was made
// anew under its name.
type stamp struct {
	inode, born, changed uint64 // number, and times in nanoseconds; a folder's changes do not count
	size                 uint64
	dir                  bool
	mode                 uint32
}

func stampOf(path string) (stamp, error) {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st)
	if err != nil {
		return stamp{}, &fs.PathError{Op: "statx", Path: path, Err: err}
	}
	nanoseconds := func(t unix.StatxTimestamp) uint64 { return uint64(t.Sec)*1e9 + uint64(t.Nsec) }
	s := stamp{inode: st.Ino, born: nanoseconds(st.Btime), mode: uint32(st.Mode) & 0o777}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		s.dir = true
	case unix.S_IFREG:
		s.changed, s.size = nanoseconds(st.Mtime), st.Size
	default:
		return stamp{}, fmt.Errorf("%s: neither a file nor a folder", path)
	}
	return s, nil
}

// deliver sees to it that the machine has what the command needs of the host:
// the instance's folder, and the program, unless the machine has one there.
func (m *mirror) deliver(ctx context.Context, agent *client, in *Instance, c vitrine.Command) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	own := []string{logFile, consoleFile, useFile, machineDir}
	if err := m.sync(ctx, agent, in.spec.Dir, func(path string) bool {
		rel, err := filepath.Rel(in.spec.Dir, path)
		return err != nil || slices.Contains(own, rel) || path == c.Stdout
	}); err != nil {
		return err
	}
	program := c.Args[0]
	if !filepath.IsAbs(program) {
		return nil
	}
	s, err := stampOf(program)
	if err != nil || s.dir || m.known[program] == s {
		return nil //nolint:nilerr // the host has none: the machine may, or says what is wrong
	}
	_, copied := m.known[program]
	if !copied && program == in.substrate.config.Agent[0] {
		if err := agent.ask(ctx, guest.Request{Op: guest.OpOwn, Path: program}); err != nil {
			return fmt.Errorf("%s in the virtual machine: %w", program, err)
		}
		m.known[program] = s
		return nil
	}
	if !copied && agent.ask(ctx, guest.Request{Op: guest.OpHas, Path: program}) == nil {
		return nil
	}
	return m.put(ctx, agent, program, s)
}

// tree copies a file, or a folder with all that is in it.
func (m *mirror) tree(ctx context.Context, agent *client, path string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := os.Stat(path); err != nil {
		return &vitrine.BadInput{File: path, Found: err.Error(), Want: "a file or folder of this host"}
	}
	return m.sync(ctx, agent, path, func(string) bool { return false })
}

// sync makes what is below the folder the same in the machine, but for what is
// skipped.
func (m *mirror) sync(ctx context.Context, agent *client, root string, skip func(path string) bool) error {
	if err := m.removed(ctx, agent, root); err != nil {
		return err
	}
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if skip(path) {
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		if d.Type()&^fs.ModeSymlink != 0 && !d.IsDir() {
			return nil // a socket or the like is the host's
		}
		s, err := stampOf(path)
		if err != nil || m.known[path] == s {
			return nil //nolint:nilerr // gone meanwhile
		}
		return m.put(ctx, agent, path, s)
	})
}

// removed removes from the machine what is below the folder and is no longer
// there on the host, or is another under the old name.
func (m *mirror) removed(ctx context.Context, agent *client, root string) error {
	for path, was := range m.known {
		if path != root && !strings.HasPrefix(path, root+"/") {
			continue
		}
		now, err := stampOf(path)
		if err == nil && (now == was || !now.dir && !was.dir) {
			continue // a file that changed is copied over the old one
		}
		if err := agent.ask(ctx, guest.Request{Op: guest.OpRemove, Path: path}); err != nil {
			return fmt.Errorf("removing %s from the virtual machine: %w", path, err)
		}
		for below := range m.known {
			if below == path || strings.HasPrefix(below, path+"/") {
				delete(m.known, below)
			}
		}
	}
	return nil
}

func (m *mirror) put(ctx context.Context, agent *client, path string, s stamp) error {
	var err error
	if s.dir {
		err = agent.ask(ctx, guest.Request{Op: guest.OpPut, Path: path, Dir: true, Mode: s.mode})
	} else {
		err = agent.put(ctx, path, path)
	}
	if err == nil {
		m.known[path] = s
	}
	return err
}

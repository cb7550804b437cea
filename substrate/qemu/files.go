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

// A mirror copies files of the host to the same paths in a machine, and keeps them up to
// date: the instance's folder, and the programs of commands.
type mirror struct {
	mu    sync.Mutex
	known map[string]stamp // by path: the stamp of the copied version
}

// A stamp distinguishes a file from its later versions, and a folder from a
// new one of the same name.
type stamp struct {
	inode, born, changed uint64 // inode number, and times in nanoseconds; changed is 0 for a folder
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

// deliver copies what the command needs from the host: the instance's folder, and the
// program, unless the machine has its own program there.
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

// tree copies a file, or a folder with its content.
func (m *mirror) tree(ctx context.Context, agent *client, path string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := os.Stat(path); err != nil {
		return &vitrine.BadInput{File: path, Found: err.Error(), Want: "a file or folder of this host"}
	}
	return m.sync(ctx, agent, path, func(string) bool { return false })
}

// sync copies everything below root that has changed to the machine, except what skip skips. It
// follows root itself and links to files. It refuses links to folders, because they may form a loop.
func (m *mirror) sync(ctx context.Context, agent *client, root string, skip func(path string) bool) error {
	if err := m.removeStale(ctx, agent, root); err != nil {
		return err
	}
	followed, err := filepath.EvalSymlinks(root)
	if err != nil {
		return err
	}
	return filepath.WalkDir(followed, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		path = filepath.Join(root, strings.TrimPrefix(path, followed))
		if skip(path) {
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		if d.Type()&^fs.ModeSymlink != 0 && !d.IsDir() {
			return nil // sockets and the like stay on the host
		}
		s, err := stampOf(path)
		if s.dir && !d.IsDir() {
			return &vitrine.BadInput{File: path, Found: "a link to a folder", Want: "want the folder itself in this place"}
		}
		if err != nil || m.known[path] == s {
			return nil //nolint:nilerr // gone meanwhile
		}
		return m.put(ctx, agent, path, s)
	})
}

// removeStale removes from the machine what was below root and is gone from the host, or has
// been replaced by another kind under the same name.
func (m *mirror) removeStale(ctx context.Context, agent *client, root string) error {
	for path, was := range m.known {
		if path != root && !strings.HasPrefix(path, root+"/") {
			continue
		}
		now, err := stampOf(path)
		if err == nil && (now == was || !now.dir && !was.dir) {
			continue // put copies a changed file over the old one
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

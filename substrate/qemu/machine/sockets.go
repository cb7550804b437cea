package machine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"vitrine/substrate"
)

// sockets are the listening sockets that QEMU connects to at its start, so that Start need
// not poll. Their files are removed once QEMU has connected.
type sockets struct {
	dir     *os.File
	listens map[string]*net.UnixListener
}

const socketSuffix = ".sock"

func listen(dir string, names []string) (*sockets, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the machine's folder: %w", err)
	}
	s := &sockets{dir: d, listens: make(map[string]*net.UnixListener)}
	for _, name := range names {
		file := filepath.Join(dir, name+socketSuffix)
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, errors.Join(err, s.close())
		}
		// The path goes through the open folder, because a socket's path has at most
		// 107 characters (unix(7)).
		short := "/proc/self/fd/" + strconv.Itoa(int(d.Fd())) + "/" + name + socketSuffix
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("listening for the machine: %w", err), s.close())
		}
		s.listens[name] = l
	}
	return s, nil
}

// accept waits until the process has connected to all sockets.
func (s *sockets) accept(ctx context.Context, process substrate.Process) (map[string]net.Conn, error) {
	stop := context.AfterFunc(ctx, s.interrupt)
	defer stop()
	accepted := make(chan struct{})
	var group errgroup.Group
	group.Go(func() error {
		select {
		case <-process.Done():
			s.interrupt()
		case <-accepted:
		}
		return nil
	})
	conns := make(map[string]net.Conn)
	var err error
	for name, l := range s.listens {
		var conn net.Conn
		if conn, err = l.Accept(); err != nil {
			break
		}
		conns[name] = conn
	}
	close(accepted)
	_ = group.Wait()
	if err == nil {
		return conns, nil
	}
	for _, conn := range conns {
		_ = conn.Close()
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("waiting for %s: %w", Program, context.Cause(ctx))
	}
	select {
	case <-process.Done():
		return nil, fmt.Errorf("%s has ended: %w", Program, process.Err())
	default:
		return nil, fmt.Errorf("waiting for %s: %w", Program, err)
	}
}

func (s *sockets) interrupt() {
	for _, l := range s.listens {
		_ = l.SetDeadline(time.Unix(1, 0))
	}
}

func (s *sockets) close() error {
	var errs []error
	for _, l := range s.listens {
		errs = append(errs, l.Close()) // also removes the file
	}
	return errors.Join(append(errs, s.dir.Close())...)
}

// outputError returns an error with the last of QEMU's own output; nil: no output.
func outputError(dir string) error {
	last := substrate.LastOutput(Log(dir), 1000)
	if last == "" {
		return nil
	}
	return fmt.Errorf("%s printed: %s", Program, last)
}

package guest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// An agent serves the host's requests.
type agent struct {
	in  *bufio.Reader
	out *Writer

	mu       sync.Mutex
	commands map[uint32]*command
	work     errgroup.Group // one goroutine for each slow request
}

// ReadingInterval is the interval at which a machine sends its counters.
const ReadingInterval = time.Second

// serve answers the host until the port closes.
func serve(ctx context.Context, port io.ReadWriter) error {
	a := &agent{in: bufio.NewReaderSize(port, 64<<10), out: NewWriter(port), commands: make(map[uint32]*command)}
	if err := confine(); err != nil {
		return fmt.Errorf("limiting the memory of commands: %w", err)
	}
	if err := a.out.Frame(Frame{Kind: KindHello}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	a.work.Go(func() error { return a.read(ctx) })
	err := a.requests(ctx)
	cancel()
	return errors.Join(err, a.endAll(), a.work.Wait())
}

// endAll ends all commands, because the host can no longer ask for it.
func (a *agent) endAll() error {
	a.mu.Lock()
	numbers := slices.Collect(maps.Keys(a.commands))
	a.mu.Unlock()
	var errs []error
	for _, number := range numbers {
		errs = append(errs, a.end(context.Background(), number))
	}
	return errors.Join(errs...)
}

// requests reads the requests and serves them one after the other. Slow ones run in goroutines.
func (a *agent) requests(ctx context.Context) error {
	for {
		f, err := ReadFrame(a.in)
		if err != nil {
			return fmt.Errorf("reading from the host: %w", err)
		}
		var r Request
		if f.Kind != KindRequest {
			return fmt.Errorf("the host sent an unexpected frame of kind %q", f.Kind)
		}
		if err := json.Unmarshal(f.Payload, &r); err != nil {
			return fmt.Errorf("decoding a request of the host: %w", err)
		}
		switch r.Op {
		case OpPut: // its data follow
			err = a.answer(f.Number, a.put(r))
		case OpEnd: // may take a while
			a.work.Go(func() error { return a.answer(f.Number, a.end(ctx, r.Target)) })
		default:
			err = a.answer(f.Number, a.do(f.Number, r))
		}
		if err != nil {
			return err
		}
	}
}

func (a *agent) answer(number uint32, err error) error {
	var answer Answer
	if err != nil {
		answer.Error = err.Error()
	}
	return a.out.Value(KindAnswer, number, answer)
}

// do serves the requests that are quick.
func (a *agent) do(number uint32, r Request) error {
	switch {
	case r.Op == OpSetup && r.Setup != nil:
		return setUp(*r.Setup)
	case r.Op == OpStart && r.Command != nil:
		return a.start(number, *r.Command)
	case r.Op == OpSignal:
		return a.signal(r.Target, unix.Signal(r.Signal))
	case r.Op == OpOwn:
		return linkSelf(r.Path)
	case r.Op == OpRemove:
		return os.RemoveAll(r.Path)
	case r.Op == OpHas:
		_, err := os.Stat(r.Path)
		return err
	case r.Op == OpOff:
		return off()
	}
	return fmt.Errorf("unknown request %q", r.Op)
}

// linkSelf makes a link to this program at path, so that the host need not send it again. It
// replaces an older link, which the disk of a restarted machine may have.
func linkSelf(path string) error {
	program, err := os.Executable()
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err == nil {
		err = os.Remove(path)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.Symlink(program, path)
}

// put writes a file that the host sends, or makes a folder.
func (a *agent) put(r Request) error {
	if r.Dir {
		return os.MkdirAll(r.Path, os.FileMode(r.Mode))
	}
	failed := os.MkdirAll(filepath.Dir(r.Path), 0o755)
	// Write a new file and rename it, because a running program cannot be written to.
	var file *os.File
	if failed == nil {
		file, failed = os.CreateTemp(filepath.Dir(r.Path), ".put-")
	}
	for left := r.Size; left > 0; {
		f, err := ReadFrame(a.in)
		if err != nil || f.Kind != KindData || len(f.Payload) == 0 {
			return errors.Join(errors.New("a truncated file"), err)
		}
		left -= int64(len(f.Payload))
		if failed == nil {
			_, failed = file.Write(f.Payload)
		}
	}
	if file == nil {
		return failed
	}
	failed = errors.Join(failed, file.Chmod(os.FileMode(r.Mode)), file.Close())
	if failed == nil {
		failed = os.Rename(file.Name(), r.Path)
	}
	if failed != nil {
		_ = os.Remove(file.Name())
	}
	return failed
}

// off writes dirty pages to the disks and switches the machine off.
func off() error {
	unix.Sync()
	return unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

package unikernel

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// compile compiles the kernel that the tree is configured for.
func compile(ctx context.Context, logger *slog.Logger, tree string) error {
	return runWith(ctx, &progress{logger: logger, logged: time.Now()}, "make", "-C", tree, fmt.Sprintf("-j%d", runtime.NumCPU()), "bzImage")
}

// A progress counts the files in make's output, and logs the count at intervals.
type progress struct {
	logger *slog.Logger
	files  int
	logged time.Time
}

// Interval of progress messages, and the approximate number of files.
const (
	logInterval = 20 * time.Second
	kernelFiles = 820
)

// Write counts the files in make's output. It misses a line that is split between two
// calls, because exact progress does not matter.
func (c *progress) Write(p []byte) (int, error) {
	c.files += bytes.Count(p, []byte("  CC  ")) + bytes.Count(p, []byte("  AS  "))
	if time.Since(c.logged) >= logInterval {
		c.logged = time.Now()
		c.logger.Info("building the kernel", "compiled", fmt.Sprintf("%d of about %d files", c.files, kernelFiles))
	}
	return len(p), nil
}

// run runs a program. All its processes end with ctx. Its error has the end of the output.
func run(ctx context.Context, args ...string) error { return runWith(ctx, nil, args...) }

// runWith is like run but also copies standard output to watch.
func runWith(ctx context.Context, watch io.Writer, args ...string) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	// The kernel must not depend on the builder or the time.
	cmd.Env = append(cmd.Environ(), "LC_ALL=C", "KBUILD_BUILD_TIMESTAMP=@0", "KBUILD_BUILD_USER=vitrine", "KBUILD_BUILD_HOST=vitrine")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	runtime.LockOSThread() // for Pdeathsig
	defer runtime.UnlockOSThread()
	out, err := os.CreateTemp("", "vitrine-build-")
	if err != nil {
		return err
	}
	defer out.Close()
	if err := os.Remove(out.Name()); err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = out, out
	if watch != nil {
		cmd.Stdout = io.MultiWriter(out, watch)
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	err = cmd.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("%s: %w:\n%s", strings.Join(args[:min(3, len(args))], " "), err, lastOutput(out))
	}
	return nil
}

// lastOutput returns the end of the output.
func lastOutput(f *os.File) string {
	const most = 2000
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err.Error()
	}
	b := make([]byte, min(size, most))
	n, _ := f.ReadAt(b, size-int64(len(b)))
	return string(bytes.TrimSpace(b[:n]))
}

package unikernel

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	packed "vitrine/image/unikernel"
	"vitrine/substrate"
	"vitrine/substrate/qemu/machine"
)

// The serial ports of an image that was built here; see guest/init.c of package image/unikernel.
const (
	portControl = "vitrine.control"
	portLog     = "vitrine.log"
	portOut     = "vitrine.out"
)

// bootLimit bounds the time until a machine's application runs. Emulated, with a tenth of a
// CPU, a machine takes nearly a minute.
const bootLimit = 3 * time.Minute

// A guest is a running machine.
type guest struct {
	machine   *machine.Machine
	builtHere bool
	console   string // file with the kernel's output

	running chan struct{} // closed when the application runs
	run     sync.Once     // closes running
	done    chan struct{} // closed when the machine has ended and all its output is in files

	mu          sync.Mutex
	cause       string // "exit 7", "signal 9", "memory", "failed WHY"; empty: unknown
	switchedOff bool   // Stop or Remove switched the machine off
	err         error  // set before done is closed
}

// Done is closed when the machine has ended.
func (g *guest) Done() <-chan struct{} { return g.done }

// Err returns how the application ended, or how QEMU ended if the image was not built here.
func (g *guest) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// boot starts the machine and waits until the application runs in it.
func (in *Instance) boot(ctx context.Context, spec machine.Spec, start *packed.Start, stdout string) (*guest, error) {
	var sinks []*os.File
	closeAll := func() {
		for _, f := range sinks {
			_ = f.Close()
		}
	}
	if start != nil {
		for _, path := range []string{filepath.Join(in.spec.Dir, "log"), stdout} {
			if path == "" {
				continue
			}
			f, err := substrate.OpenOutput(path)
			if err != nil {
				closeAll()
				return nil, err
			}
			sinks = append(sinks, f)
		}
	}
	m, err := machine.Start(ctx, in.place, spec)
	if err != nil {
		closeAll()
		return nil, err
	}
	g := &guest{machine: m, builtHere: start != nil, console: spec.Console, running: make(chan struct{}), done: make(chan struct{})}
	go g.follow(sinks)
	if start == nil {
		return g, nil
	}
	if _, err := m.Port(portControl).Write(start.Handover()); err != nil {
		return nil, errors.Join(fmt.Errorf("sending the command to the machine: %w", err), g.switchOff(ctx))
	}
	limit := time.NewTimer(bootLimit)
	defer limit.Stop()
	select {
	case <-g.running:
		return g, nil
	case <-g.done:
		if err = g.Err(); err == nil {
			err = errors.New("the machine ended before the application ran")
		}
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-limit.C:
		err = fmt.Errorf("the application does not run after %v; the console ends with: %s", bootLimit, g.tail())
	}
	return nil, errors.Join(err, g.switchOff(ctx))
}

// follow copies the machine's output until the machine ends, and then closes the sinks.
// These are the log and, if there is one, the file for standard output.
func (g *guest) follow(sinks []*os.File) {
	defer close(g.done)
	var all sync.WaitGroup
	failures := make([]error, len(sinks))
	for i, sink := range sinks {
		port := g.machine.Port([]string{portLog, portOut}[i])
		all.Go(func() { failures[i] = errors.Join(copyOutput(sink, port), sink.Close()) })
	}
	if g.builtHere {
		g.control(g.machine.Port(portControl))
	}
	all.Wait()
	<-g.machine.Done()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.err = errors.Join(append(failures, g.verdict())...)
}

// copyOutput copies a port to its end. If the sink cannot be written, as on a full disk, the output is
// lost, but the application goes on.
func copyOutput(sink io.Writer, port io.Reader) error {
	out := lossy{to: sink}
	_, err := io.Copy(&out, port)
	return errors.Join(out.err, ignoreHangUp(err))
}

// A lossy writer loses what cannot be written, and keeps the first error.
type lossy struct {
	to  io.Writer
	err error
}

func (l *lossy) Write(b []byte) (int, error) {
	if _, err := l.to.Write(b); l.err == nil {
		l.err = err
	}
	return len(b), nil
}

// ignoreHangUp returns nil for the errors that a port returns when its machine ends.
func ignoreHangUp(err error) error {
	var op interface{ Timeout() bool }
	if errors.Is(err, io.EOF) || errors.Is(err, os.ErrClosed) || errors.As(err, &op) {
		return nil
	}
	return err
}

// control handles the lines from the first program until the port ends.
func (g *guest) control(port io.Reader) {
	lines := bufio.NewScanner(port)
	for lines.Scan() {
		g.handleLine(lines.Text())
	}
}

// handleLine handles one line from the first program.
func (g *guest) handleLine(line string) {
	if line == "running" {
		g.run.Do(func() { close(g.running) }) // a guest may send the line again
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cause = substrate.Printable(line)
}

// verdict returns the error for the way the machine ended.
func (g *guest) verdict() error {
	word, rest, _ := strings.Cut(g.cause, " ")
	switch {
	case word == "exit" && rest == "0":
		return nil
	case word == "exit":
		return fmt.Errorf("exit status %s", rest)
	case word == "signal":
		return fmt.Errorf("ended by signal %s", rest)
	case word == "memory":
		return errors.New("killed: the machine ran out of memory")
	case word == "failed":
		return errors.New(rest)
	case g.switchedOff:
		return errors.New("switched off")
	case g.builtHere:
		return fmt.Errorf("the machine ended by itself: %w; the console ends with: %s", qemuError(g.machine.Err()), g.tail())
	}
	return g.machine.Err()
}

func qemuError(err error) error {
	if err == nil {
		return errors.New("without an error from QEMU")
	}
	return err
}

// tail returns the end of the kernel's output.
func (g *guest) tail() string { return substrate.LastOutput(g.console, 1500) }

// end asks the application to end, and waits until it ends or grace is over.
func (g *guest) end(ctx context.Context, grace time.Duration) {
	if !g.builtHere {
		// A machine without a power button runs until switchOff.
		_ = g.machine.PowerDown(ctx, grace)
		return
	}
	if _, err := io.WriteString(g.machine.Port(portControl), "term\n"); err != nil {
		return // it has ended or is ending
	}
	substrate.Await(ctx, g, grace)
}

// switchOff switches the machine off and waits until all its output is in files.
func (g *guest) switchOff(ctx context.Context) error {
	ctx, cancel := substrate.Ending(ctx)
	defer cancel()
	g.mu.Lock()
	g.switchedOff = true
	g.mu.Unlock()
	if err := g.machine.Stop(ctx); err != nil {
		return err
	}
	select {
	case <-g.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the machine's output does not end: %w", context.Cause(ctx))
	}
}

package qemu

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"vitrine/substrate"
	"vitrine/substrate/qemu/guest"
)

// A client sends requests to a machine's agent. Its methods may be called from any goroutine.
type client struct {
	conn net.Conn
	out  *guest.Writer

	sending chan struct{} // a lock: no request may come between a file's request and its data

	mu       sync.Mutex
	number   uint32
	answers  map[uint32]chan guest.Answer
	commands map[uint32]*command
	readings io.Writer
	lastRead time.Time // when listen wrote the last reading

	hello chan struct{} // closed when the agent runs
	ended chan struct{} // closed when the port is closed
	err   error         // why the port was closed
}

// newClient serves the host's end of the agent's port. It writes the guest's readings to
// readings, one line each. The client ends with the port.
func newClient(conn net.Conn, readings io.Writer) *client {
	c := &client{
		conn: conn, out: guest.NewWriter(conn), readings: readings, sending: make(chan struct{}, 1),
		answers: make(map[uint32]chan guest.Answer), commands: make(map[uint32]*command),
		hello: make(chan struct{}), ended: make(chan struct{}),
	}
	go c.listen()
	return c
}

// close ends the client and waits until it has ended.
func (c *client) close() {
	_ = c.conn.Close()
	<-c.ended
}

func (c *client) listen() {
	in := bufio.NewReaderSize(c.conn, 64<<10)
	err := error(nil)
	for err == nil {
		var f guest.Frame
		if f, err = guest.ReadFrame(in); err == nil {
			err = c.handle(f)
		}
	}
	_ = c.conn.Close()
	c.mu.Lock()
	c.err = fmt.Errorf("the virtual machine has ended: %w", err)
	commands := c.commands
	c.commands = nil
	c.mu.Unlock()
	for _, r := range commands {
		r.markEnded(c.err)
		r.closeOutput()
	}
	close(c.ended)
}

// handle handles a frame from the agent.
func (c *client) handle(f guest.Frame) error {
	c.mu.Lock()
	r, answer := c.commands[f.Number], c.answers[f.Number]
	c.mu.Unlock()
	switch f.Kind {
	case guest.KindHello:
		select {
		case <-c.hello:
			return errors.New("the agent was started twice")
		default:
			close(c.hello)
		}
	case guest.KindAnswer:
		var a guest.Answer
		if err := json.Unmarshal(f.Payload, &a); err != nil {
			return fmt.Errorf("decoding an answer of the agent: %w", err)
		}
		switch {
		case answer != nil:
			select {
			case answer <- a: // has room for one
			default: // a guest that repeats an answer must not block listen
			}
		case r != nil && a.Error != "": // nobody waits for it any more
			r.failStart(errors.New(a.Error))
		}
	case guest.KindStdout, guest.KindStderr:
		if r != nil {
			r.handleOutput(f.Kind == guest.KindStderr, f.Payload)
		}
	case guest.KindExit:
		var e guest.Exit
		if err := json.Unmarshal(f.Payload, &e); err != nil {
			return fmt.Errorf("decoding an exit report of the agent: %w", err)
		}
		if r != nil {
			r.markEnded(exitError(e))
		}
	case guest.KindClosed:
		if r != nil {
			r.closeOutput()
			c.forget(f.Number)
		}
	case guest.KindUse:
		return c.writeReading(f.Payload)
	default:
		return fmt.Errorf("the agent sent a frame of kind %q", f.Kind)
	}
	return nil
}

func exitError(e guest.Exit) error {
	switch {
	case e.Error == "":
		return nil
	case e.OutOfMemory:
		return fmt.Errorf("%s: over the memory limit", e.Error)
	}
	return errors.New(e.Error)
}

// forget drops a command once it has ended and its output is closed.
func (c *client) forget(number uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.commands[number]; r != nil && r.isOver() {
		delete(c.commands, number)
	}
}

// writeReading writes a reading of the guest's counters. It drops readings that come too often,
// because a guest must not fill the host's disk. If the file cannot be written, as on a full disk,
// the reading is lost, but the machine goes on.
func (c *client) writeReading(text []byte) error {
	var r guest.Reading
	if err := json.Unmarshal(text, &r); err != nil {
		return fmt.Errorf("decoding a reading of the agent: %w", err)
	}
	now := time.Now()
	if c.readings == nil || now.Sub(c.lastRead) < guest.ReadingInterval/2 {
		return nil
	}
	c.lastRead = now
	_, _ = fmt.Fprintf(c.readings, "%.3f,%.2f,%.2f,%d,%d,%d\n", float64(now.UnixMilli())/1000, r.CPU, r.Steal, r.Memory, r.Rx, r.Tx)
	return nil
}

// readingsHeader is the header of the file that writeReading writes: the host's time in seconds
// since 1970, counters since the machine started, and bytes in use.
const readingsHeader = "time_s,cpu_s,steal_s,memory_bytes,rx_bytes,tx_bytes\n"

// ready waits until the agent runs.
func (c *client) ready(ctx context.Context) error {
	select {
	case <-c.hello:
		return nil
	case <-c.ended:
		return c.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ask sends a request and waits for its answer.
func (c *client) ask(ctx context.Context, r guest.Request) error {
	return c.request(ctx, r, nil, nil)
}

// request sends a request, for a command or for a file with its data, and waits for the
// answer. If ctx ends first, the command may run, or start later.
func (c *client) request(ctx context.Context, r guest.Request, run *command, data io.Reader) error {
	answer := make(chan guest.Answer, 1)
	c.mu.Lock()
	if c.commands == nil {
		defer c.mu.Unlock()
		return c.err
	}
	c.number++
	number := c.number
	c.answers[number] = answer
	if run != nil {
		run.number = number
		c.commands[number] = run
	}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.answers, number)
		c.mu.Unlock()
	}()
	if err := c.send(ctx, number, r, data); err != nil {
		err = fmt.Errorf("asking the virtual machine's agent: %w", err)
		run.failStart(err)
		return err
	}
	select {
	case a := <-answer:
		if a.Error == "" {
			return nil
		}
		err := errors.New(a.Error)
		run.failStart(err)
		return err
	case <-c.ended:
		return c.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// send writes a request and its data until ctx ends. It closes the port after a partial
// write, because nothing can follow that.
func (c *client) send(ctx context.Context, number uint32, r guest.Request, data io.Reader) error {
	select {
	case c.sending <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-c.sending }()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	late := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = c.conn.SetWriteDeadline(time.Unix(1, 0))
		close(late)
	})
	err := c.write(number, r, data)
	if !stop() {
		<-late
		_ = c.conn.SetWriteDeadline(time.Time{})
	}
	if err != nil {
		_ = c.conn.Close()
		err = errors.Join(context.Cause(ctx), err)
	}
	return err
}

func (c *client) write(number uint32, r guest.Request, data io.Reader) error {
	if err := c.out.Value(guest.KindRequest, number, r); err != nil {
		return err
	}
	buf := make([]byte, 256<<10)
	for left := r.Size; data != nil && left > 0; {
		n, err := io.ReadFull(data, buf[:min(left, int64(len(buf)))])
		if err != nil {
			return err
		}
		if err := c.out.Frame(guest.Frame{Kind: guest.KindData, Number: number, Payload: buf[:n]}); err != nil {
			return err
		}
		left -= int64(n)
	}
	return nil
}

// put copies a file of the host to the machine.
func (c *client) put(ctx context.Context, from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	r := guest.Request{Op: guest.OpPut, Path: to, Mode: uint32(info.Mode().Perm()), Size: info.Size()}
	if err := c.request(ctx, r, nil, io.LimitReader(f, info.Size())); err != nil {
		return fmt.Errorf("copying %s to the virtual machine: %w", from, err)
	}
	return nil
}

// A command runs in the machine.
type command struct {
	client *client
	number uint32
	done   chan struct{}
	err    error

	mu             sync.Mutex
	stdout, stderr *os.File
	tail           []byte // of its output
	shut           bool
}

const tailSize = 2048 // bytes of output in an error

// Done is closed when the command or its machine has ended.
func (r *command) Done() <-chan struct{} { return r.done }

// Err returns how the command ended.
func (r *command) Err() error { return r.err }

// handleOutput stores output of the command. If a file cannot be written, as on a full disk, the
// output is lost, but the command goes on.
func (r *command) handleOutput(stderr bool, b []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.shut {
		return
	}
	to := r.stdout
	if stderr {
		to = r.stderr
	}
	_, _ = to.Write(b)
	r.tail = append(r.tail, b...)
	r.tail = r.tail[max(0, len(r.tail)-tailSize):]
}

func (r *command) markEnded(err error) {
	r.mu.Lock()
	if !substrate.Ended(r) {
		r.err = err
		close(r.done)
	}
	r.mu.Unlock()
	r.client.forget(r.number)
}

// failStart ends a command that never started.
func (r *command) failStart(err error) {
	if r != nil {
		r.closeOutput()
		r.markEnded(err)
	}
}

func (r *command) closeOutput() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.shut {
		return
	}
	r.shut = true
	_ = r.stdout.Close()
	if r.stderr != r.stdout {
		_ = r.stderr.Close()
	}
}

func (r *command) isOver() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.shut && substrate.Ended(r)
}

// signal sends a signal to the command's process group.
func (r *command) signal(ctx context.Context, sig unix.Signal) error {
	return r.client.ask(ctx, guest.Request{Op: guest.OpSignal, Target: r.number, Signal: int(sig)})
}

// end kills the command and all its descendants, and waits until they have ended.
func (r *command) end(ctx context.Context) error {
	if err := r.client.ask(ctx, guest.Request{Op: guest.OpEnd, Target: r.number}); err != nil {
		return err
	}
	select {
	case <-r.done:
		return nil
	case <-r.client.ended:
		return r.client.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

package impair

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"vitrine/internal/netns"
)

// A process is a running emulator.
type process struct {
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	answers *json.Decoder
	mu      sync.Mutex    // held during an order and its answer
	done    chan struct{} // closed when the emulator has ended
	exit    error         // how it ended; valid when done is closed
	stderr  bytes.Buffer  // its standard error; valid when done is closed
}

// startProcess starts an emulator in a network namespace. command is the
// program and its arguments, with Verb as the last.
func startProcess(command []string, namespace string, cpu *int) (*process, error) {
	p := &process{cmd: exec.CommandContext(context.Background(), command[0], command[1:]...), done: make(chan struct{})}
	p.cmd.Stderr = &p.stderr
	// A Ctrl-C at a terminal must reach only this program, which then ends the
	// emulator. Besides, if the emulator is stopped when this program ends, the
	// kernel wakes the emulator's process group, and the end of stdin ends it.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// The emulator is this program too, so it gets the whole environment. Automatic
	// garbage collection is off, because it could delay the thread at any time. The
	// emulator collects when it removes a link.
	p.cmd.Env = append(os.Environ(), "GOGC=off", "GOMEMLIMIT=off")
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, errors.Join(err, stdin.Close())
	}
	p.stdin, p.answers = stdin, json.NewDecoder(stdout)
	if err := netns.Do(namespace, p.cmd.Start); err != nil {
		return nil, errors.Join(fmt.Errorf("starting the link emulator: %w", err), stdin.Close())
	}
	go func() {
		p.exit = p.cmd.Wait()
		close(p.done)
	}()
	if _, err := p.do(context.Background(), order{Start: &start{CPU: cpu}}); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

// patience is how long an emulator may take to answer, and to end.
const patience = 10 * time.Second

// kill ends the emulator at once; it may have ended already.
func (p *process) kill() { _ = p.cmd.Process.Kill() }

// ended returns an error with the reason if the emulator has ended.
func (p *process) ended() error {
	select {
	case <-p.done:
		return fmt.Errorf("the link emulator has ended (%v); its links carry no packets; its output: %s", p.cmd.ProcessState, bytes.TrimSpace(p.stderr.Bytes()))
	default:
		return nil
	}
}

// do sends an order and waits for the answer.
func (p *process) do(ctx context.Context, o order) ([]Made, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.ended(); err != nil {
		return nil, err
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	line, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	// An emulator that does not answer is of no use any more. The end of ctx must
	// not end it, because it also has the links of other instances.
	defer time.AfterFunc(patience, p.kill).Stop()
	var a answer
	if _, err = p.stdin.Write(append(line, '\n')); err == nil {
		err = p.answers.Decode(&a)
	}
	if err != nil {
		p.kill() // it may still run if its answer is not valid
		<-p.done
		return nil, fmt.Errorf("no answer to an order (%w): %w", err, p.ended())
	}
	if a.Error != "" {
		return nil, fmt.Errorf("the link emulator: %s", a.Error)
	}
	return a.Made, nil
}

// stop ends the emulator and waits for its end. If the emulator has already
// ended, that is no error, because ended and do report it.
func (p *process) stop() error {
	if p.ended() != nil {
		return nil
	}
	err := p.stdin.Close()
	if errors.Is(err, os.ErrClosed) { // the emulator has just ended
		err = nil
	}
	defer time.AfterFunc(patience, p.kill).Stop()
	<-p.done
	if p.exit != nil {
		err = errors.Join(err, p.ended())
	}
	return err
}

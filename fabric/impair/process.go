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
	stderr  bytes.Buffer // its standard error
	mu      sync.Mutex   // held during an order and its answer
	failed  error        // set when the emulator does not answer any more
}

// startProcess starts an emulator in a network namespace. command is the
// program and its arguments, with Verb as the last.
func startProcess(command []string, namespace string, cpu *int) (*process, error) {
	p := &process{cmd: exec.CommandContext(context.Background(), command[0], command[1:]...)}
	p.cmd.Stderr = &p.stderr
	// A Ctrl-C at a terminal must reach only this program, which then ends the
	// emulator. Besides, if the emulator is stopped when this program ends, the
	// kernel wakes and ends the emulator's process group.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// The emulator is this program too, so it gets the whole environment. Garbage
	// collection is off: it would delay the thread, and there is nothing to
	// collect.
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
	if _, err := p.do(context.Background(), order{Start: &start{CPU: cpu}}); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

// patience is how long an emulator may take to answer, and to end.
const patience = 10 * time.Second

// kill ends the emulator at once; it may have ended already.
func (p *process) kill() { _ = p.cmd.Process.Kill() }

// do sends an order and waits for the answer.
func (p *process) do(ctx context.Context, o order) ([]Made, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed != nil {
		return nil, p.failed
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	line, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	defer context.AfterFunc(ctx, p.kill)() // an emulator that does not answer is of no use any more
	var a answer
	if _, err = p.stdin.Write(append(line, '\n')); err == nil {
		err = p.answers.Decode(&a)
	}
	if err != nil {
		p.failed = fmt.Errorf("the link emulator has ended (%w); its links carry no packets; its output: %s", err, bytes.TrimSpace(p.stderr.Bytes()))
		p.kill() // so that the message is true
		return nil, p.failed
	}
	if a.Error != "" {
		return nil, fmt.Errorf("the link emulator: %s", a.Error)
	}
	return a.Made, nil
}

// stop ends the emulator and waits for its end.
func (p *process) stop() error {
	err := p.stdin.Close()
	if errors.Is(err, os.ErrClosed) {
		err = nil
	}
	defer time.AfterFunc(patience, p.kill).Stop()
	if ended := p.cmd.Wait(); ended != nil && p.failed == nil {
		err = errors.Join(err, fmt.Errorf("the link emulator: %w: %s", ended, bytes.TrimSpace(p.stderr.Bytes())))
	}
	return err
}

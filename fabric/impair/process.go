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

// A process is an emulator that runs beside this program.
type process struct {
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	answers *json.Decoder
	said    bytes.Buffer // on standard error
	mu      sync.Mutex   // an order and its answer
	failed  error        // it does not answer any more
}

// startProcess starts an emulator in a network namespace. command is the program
// and its arguments, the verb at the end.
func startProcess(command []string, namespace string, cpu *int) (*process, error) {
	p := &process{cmd: exec.CommandContext(context.Background(), command[0], command[1:]...)}
	p.cmd.Stderr = &p.said
	// A Ctrl-C at a terminal is for this program, which then ends the emulator. And
	// a group of its own that is stopped is woken and ended by the kernel when this
	// program ends.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// The program is this one, for which all of the environment was meant; a
	// garbage collection would hold the thread up, and there is nothing to collect.
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

// do gives an order and waits for the answer.
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
	defer context.AfterFunc(ctx, p.kill)() // one that does not answer is of no use any more
	var a answer
	if _, err = p.stdin.Write(append(line, '\n')); err == nil {
		err = p.answers.Decode(&a)
	}
	if err != nil {
		p.failed = fmt.Errorf("the link emulator has ended (%w); links are cut; it said: %s", err, bytes.TrimSpace(p.said.Bytes()))
		p.kill() // so that it is true
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
		err = errors.Join(err, fmt.Errorf("the link emulator: %w: %s", ended, bytes.TrimSpace(p.said.Bytes())))
	}
	return err
}

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"vitrine"
	"vitrine/internal/hosttest"
)

// compileC compiles a C program with the host's gcc. It returns the program's path.
func compileC(ctx context.Context, dir, name string, source []byte, libraries ...string) (program string, err error) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		return "", &vitrine.Unsupported{What: name + ".c", Missing: "gcc", Do: "install it"}
	}
	program = filepath.Join(dir, name)
	compile := exec.CommandContext(ctx, gcc, append([]string{"-O2", "-o", program, "-x", "c", "-"}, libraries...)...)
	compile.Stdin = bytes.NewReader(source)
	if out, err := compile.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile %s.c: %w\n%s", name, err, out)
	}
	return program, nil
}

// product returns the vitrine program in the folder. It builds the program on first use.
func product(ctx context.Context, dir string) (string, error) {
	program := filepath.Join(dir, "vitrine")
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	return program, hosttest.Build(ctx, program, hosttest.Product)
}

// interruptible returns a command of the product. The end of ctx sends it SIGINT, so that it removes what
// it has deployed.
func interruptible(ctx context.Context, program string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, program, args...)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that Ctrl-C in a terminal is one signal, not two
	c.Cancel, c.WaitDelay = func() error { return c.Process.Signal(syscall.SIGINT) }, stopWait
	return c
}

// programs returns an error if the host lacks one of the programs.
func programs(names ...string) error {
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			return &vitrine.Unsupported{What: "a comparison with " + strings.Join(names, " and "), Missing: name, Do: "install it: .ci/install"}
		}
	}
	return nil
}

func firstLine(ctx context.Context, name, flag string) (string, error) {
	out, err := exec.CommandContext(ctx, name, flag).Output()
	line, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimSpace(line), err
}

// finish runs a command to its end and returns its output. start starts the command.
func finish(cmd *exec.Cmd, start func(*exec.Cmd) error) (string, error) {
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := start(cmd); err != nil {
		return "", fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	if err := cmd.Wait(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s%s", cmd.Path, err, out.String(), stderr.String())
	}
	return out.String(), nil
}

// cpuSeconds returns the CPU time of a process that has exited.
func cpuSeconds(cmd *exec.Cmd) float64 {
	return (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
}

// A helper is a running program that exchanges lines of text with this one.
type helper struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// startHelper starts the command with start. The program shares our stderr.
func startHelper(cmd *exec.Cmd, start func(*exec.Cmd) error) (*helper, error) {
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := start(cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return &helper{cmd, in, bufio.NewReader(out)}, nil
}

// line returns the next line that the program prints.
func (h *helper) line() (string, error) {
	line, err := h.out.ReadString('\n')
	return strings.TrimSpace(line), err
}

// close closes the program's input, which ends the program, and reaps the program.
func (h *helper) close() error { return errors.Join(h.in.Close(), h.cmd.Wait()) }

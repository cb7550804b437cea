// Package capturetest captures the packets of a network interface into a pcap file with tcpdump. It
// is for tests.
package capturetest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"syscall"

	"vitrine"
	"vitrine/internal/netns"
)

// A Capture is a running tcpdump at one interface.
type Capture struct {
	name   string // namespace and interface, for errors
	cmd    *exec.Cmd
	ended  chan struct{} // closed when tcpdump has ended; then output and err are complete
	output bytes.Buffer
	err    error
}

// Start captures packets that pass the filter (pcap-filter(7)) at an interface of a network
// namespace, and writes them to the file. It returns once the capture has begun. namespace is a
// path such as /run/netns/x; empty means this process's namespace. options are additional tcpdump
// options.
func Start(namespace, iface, filter, file string, options ...string) (*Capture, error) {
	program, err := exec.LookPath("tcpdump")
	if err != nil {
		return nil, &vitrine.Unsupported{What: "a capture", Missing: "the program tcpdump", Do: "install tcpdump"}
	}
	c := &Capture{name: strings.TrimSpace(namespace + " " + iface), ended: make(chan struct{})}
	args := append([]string{"-i", iface, "-n", "-Z", "root", "--immediate-mode", "-B", "16384", "-w", file}, options...)
	c.cmd = exec.Command(program, append(args, filter)...)               //nolint:noctx // Stop ends it
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // tied to the thread to which run locks its goroutine
	began := make(chan struct{})
	go func() {
		defer close(c.ended)
		runtime.LockOSThread() // for Pdeathsig
		defer runtime.UnlockOSThread()
		c.err = netns.Do(namespace, func() error { return c.run(began) })
	}()
	select {
	case <-began:
		return c, nil
	case <-c.ended:
		return nil, errors.Join(fmt.Errorf("capture at %s: tcpdump ended: %s", c.name, c.output.String()), c.err)
	}
}

// run runs tcpdump until it ends. It closes began once packets are captured.
func (c *Capture) run(began chan<- struct{}) error {
	printed, err := c.cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := c.cmd.Start(); err != nil {
		return err
	}
	lines := bufio.NewScanner(printed)
	for listening := false; lines.Scan(); {
		fmt.Fprintln(&c.output, lines.Text())
		if !listening && strings.Contains(lines.Text(), "listening on") {
			listening = true
			close(began)
		}
	}
	return c.cmd.Wait()
}

var dropped = regexp.MustCompile(`(?m)^(\d+) packets? dropped by`)

// Stop ends the capture and completes the file. It returns an error if tcpdump dropped packets.
func (c *Capture) Stop() error {
	select {
	case <-c.ended:
	default:
		if err := c.cmd.Process.Signal(syscall.SIGINT); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("end the capture at %s: %w", c.name, err)
		}
	}
	<-c.ended
	if c.err != nil {
		return fmt.Errorf("the capture at %s: %w: %s", c.name, c.err, c.output.String())
	}
	for _, match := range dropped.FindAllStringSubmatch(c.output.String(), -1) {
		if match[1] != "0" {
			return fmt.Errorf("the capture at %s is incomplete: %s", c.name, match[0])
		}
	}
	return nil
}

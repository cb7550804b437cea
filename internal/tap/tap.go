// Package tap captures what passes an interface into a pcap file, by tcpdump.
package tap

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

// A Tap is a tcpdump at one interface.
type Tap struct {
	name  string // of what is captured, for errors
	cmd   *exec.Cmd
	ended chan struct{} // then said and err are whole
	said  bytes.Buffer
	err   error
}

// Start returns once the capture has begun: of the packets at the interface of
// the network namespace that the filter lets through (pcap-filter(7)), into the
// file. namespace is its path, such as /run/netns/x; empty: that of this process.
// options are further ones of tcpdump's.
func Start(namespace, iface, filter, file string, options ...string) (*Tap, error) {
	program, err := exec.LookPath("tcpdump")
	if err != nil {
		return nil, &vitrine.Unsupported{What: "a capture", Missing: "the program tcpdump", Do: "install tcpdump"}
	}
	t := &Tap{name: strings.TrimSpace(namespace + " " + iface), ended: make(chan struct{})}
	args := append([]string{"-i", iface, "-n", "-Z", "root", "--immediate-mode", "-B", "16384", "-w", file}, options...)
	t.cmd = exec.Command(program, append(args, filter)...)               //nolint:noctx // Stop ends it
	t.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // with the thread that run stays on
	began := make(chan struct{})
	go func() {
		defer close(t.ended)
		runtime.LockOSThread() // for Pdeathsig
		defer runtime.UnlockOSThread()
		t.err = netns.Do(namespace, func() error { return t.run(began) })
	}()
	select {
	case <-began:
		return t, nil
	case <-t.ended:
		return nil, errors.Join(fmt.Errorf("capture at %s: tcpdump ended: %s", t.name, t.said.String()), t.err)
	}
}

// run runs tcpdump to its end. It closes began once packets are captured.
func (t *Tap) run(began chan<- struct{}) error {
	printed, err := t.cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := t.cmd.Start(); err != nil {
		return err
	}
	lines := bufio.NewScanner(printed)
	for listening := false; lines.Scan(); {
		fmt.Fprintln(&t.said, lines.Text())
		if !listening && strings.Contains(lines.Text(), "listening on") {
			listening = true
			close(began)
		}
	}
	return t.cmd.Wait()
}

var dropped = regexp.MustCompile(`(?m)^(\d+) packets? dropped by`)

// Stop ends the capture; the file is whole then. One that packets are missing
// of is an error.
func (t *Tap) Stop() error {
	select {
	case <-t.ended:
	default:
		if err := t.cmd.Process.Signal(syscall.SIGINT); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("end the capture at %s: %w", t.name, err)
		}
	}
	<-t.ended
	if t.err != nil {
		return fmt.Errorf("the capture at %s: %w: %s", t.name, t.err, t.said.String())
	}
	for _, match := range dropped.FindAllStringSubmatch(t.said.String(), -1) {
		if match[1] != "0" {
			return fmt.Errorf("the capture at %s is not whole: %s", t.name, match[0])
		}
	}
	return nil
}

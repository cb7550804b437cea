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
	"runtime"
	"strconv"
	"strings"

	"vitrine"
	captured "vitrine/affinity/message"
	"vitrine/internal/thread"
	"vitrine/wire/diameter"
)

// The capture that the programs read.
const (
	comparedPackets = 500_000
	comparedRate    = 20_000 // packets per second of capture time
)

// fieldsCommand is the first argument of this program when it prints the fields of the messages of
// a capture.
const fieldsCommand = "fields"

// tsharkFields are tshark's fields for the identifiers that affinity/message finds in SIP and
// Diameter messages. asOurs depends on their order.
var tsharkFields = []string{
	"sip.CSeq.method", "sip.Status-Code", "sip.Call-ID", "sip.Via.branch", "sip.from.addr", "sip.to.addr", "sip.from.tag", "sip.to.tag",
	"diameter.cmd.code", "diameter.flags.request", "diameter.hopbyhopid", "diameter.endtoendid", "diameter.Session-Id", "diameter.User-Name", "diameter.Public-Identity",
}

// A contest is one capture and the programs that read it. They all run on one core.
type contest struct {
	self, tshark, vitrine string // programs
	capture               string
	messages              uint64
	core                  int
}

// affinityFields compares how fast this program and tshark print the same fields of the SIP and
// Diameter messages of one capture. A second row compares vitrine affinity, which also finds the
// transactions, with tshark.
func affinityFields(ctx context.Context, dir string, progress io.Writer) ([]Row, error) {
	c, err := newContest(ctx, dir)
	if err != nil {
		return nil, err
	}
	if err := c.agree(ctx); err != nil { // also loads the capture into the page cache
		return nil, err
	}
	all, err := runRounds(ctx, minRounds, []side{c.rate(c.ours), c.rate(c.theirs), c.rate(c.analysis)}, progress)
	if err != nil {
		return nil, err
	}
	const unit = "packets/s of CPU time on one core"
	fields, err := Pairs{all[0], all[1]}.row("affinity/fields", unit, "tshark -T fields, the same fields of SIP and Diameter", ">= 20")
	if err != nil {
		return nil, err
	}
	analysis, err := Pairs{all[2], all[1]}.row("affinity/fields/analysis", unit, "the same; ours is vitrine affinity, with transactions and aggregates", "")
	return []Row{fields, analysis}, err
}

// newContest writes the capture and builds vitrine.
func newContest(ctx context.Context, dir string) (*contest, error) {
	c := &contest{capture: filepath.Join(dir, "load.pcap"), vitrine: filepath.Join(dir, "vitrine")}
	var err error
	if c.tshark, err = exec.LookPath("tshark"); err != nil {
		return nil, &vitrine.Unsupported{What: "affinity/fields", Missing: "tshark", Do: "install tshark"}
	}
	if c.self, err = os.Executable(); err != nil {
		return nil, err
	}
	cores, err := thread.Allowed()
	if err != nil {
		return nil, err
	}
	c.core = cores[len(cores)-1]
	if err := buildVitrine(ctx, c.vitrine); err != nil {
		return nil, err
	}
	file, err := os.Create(c.capture)
	if err != nil {
		return nil, err
	}
	has, err := writeSignalling(file, comparedPackets, comparedRate)
	c.messages = has.messages
	return c, errors.Join(err, file.Close())
}

func (c *contest) ours(ctx context.Context) *exec.Cmd {
	return exec.CommandContext(ctx, c.self, fieldsCommand, c.capture)
}

func (c *contest) theirs(ctx context.Context) *exec.Cmd {
	args := []string{"-n", "-r", c.capture, "-T", "fields"}
	for _, field := range tsharkFields {
		args = append(args, "-e", field)
	}
	return exec.CommandContext(ctx, c.tshark, args...)
}

func (c *contest) analysis(ctx context.Context) *exec.Cmd {
	return exec.CommandContext(ctx, c.vitrine, "affinity", c.capture)
}

// rate returns a side that measures how many packets a program reads per second of CPU time.
func (c *contest) rate(of func(context.Context) *exec.Cmd) side {
	return func(ctx context.Context) (float64, error) {
		p, err := startPrinter(of(ctx), c.core)
		if err != nil {
			return 0, err
		}
		for p.next() != nil { // the lines do not matter: agree has compared them
		}
		if err := p.end(); err != nil {
			return 0, err
		}
		return comparedPackets / cpuSeconds(p.cmd), nil
	}
}

// agree checks that both programs print the same line for each message.
func (c *contest) agree(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ours, err := startPrinter(c.ours(ctx), c.core)
	if err != nil {
		return err
	}
	theirs, err := startPrinter(c.theirs(ctx), c.core)
	if err != nil {
		cancel()
		return errors.Join(err, ours.end())
	}
	for n := uint64(0); ; n++ {
		line, other := ours.next(), theirs.next()
		if line == nil && other == nil {
			err = errors.Join(ours.end(), theirs.end())
			if err == nil && n != c.messages {
				err = fmt.Errorf("the capture has %d messages, and the programs print %d", c.messages, n)
			}
			return err
		}
		if want := asOurs(string(other)); string(line) != want {
			if err := ctx.Err(); err != nil { // the programs were stopped, so the lines may be cut off
				return errors.Join(err, ours.end(), theirs.end())
			}
			cancel()
			return errors.Join(fmt.Errorf("message %d: we print %q, tshark prints %q", n+1, line, want), ours.end(), theirs.end())
		}
	}
}

// asOurs converts a line of tshark to the format of printFields: the message's name and then its
// identifiers, normalized and separated by tabs. A line with another number of fields is returned
// unchanged.
func asOurs(line string) string {
	f := strings.Split(line, "\t")
	if len(f) != len(tsharkFields) {
		return line
	}
	user := func(uri string) string { return strings.TrimPrefix(uri, "sip:") }
	words := []string{strings.TrimSpace(f[1] + " " + f[0]), f[2], f[3], user(f[4]), user(f[5]), f[6], f[7]}
	if code, err := strconv.ParseUint(f[8], 10, 32); err == nil {
		m := diameter.Message{Command: diameter.Command(code)}
		if f[9] == "1" || f[9] == "True" { // depends on tshark's version
			m.Flags = diameter.Request
		}
		plain := func(hex string) string { // drops leading zeros
			return "0x" + strings.TrimLeft(strings.TrimPrefix(hex, "0x"), "0")
		}
		words = []string{m.Name(), plain(f[10]), plain(f[11]), f[12], f[13], user(f[14])}
	}
	for len(words) > 0 && words[len(words)-1] == "" { // answers have no user, and the first INVITE has no To tag
		words = words[:len(words)-1]
	}
	return strings.Join(words, "\t")
}

// printFields prints one line for each message of a capture: the name and the identifiers,
// separated by tabs.
func printFields(ctx context.Context, capture string, out io.Writer) error {
	w := bufio.NewWriterSize(out, 64<<10)
	var line []byte
	_, err := captured.Read(ctx, []string{capture}, captured.Options{}, func(m *captured.Message) error {
		line = append(line[:0], m.Name...)
		for i := range m.Identifiers {
			line = append(line, '\t')
			line = append(line, m.Identifiers[i].Text...)
		}
		_, err := w.Write(append(line, '\n'))
		return err
	})
	return errors.Join(err, w.Flush())
}

// A printer is a running program and the lines that it prints.
type printer struct {
	cmd    *exec.Cmd
	stderr bytes.Buffer
	lines  *bufio.Scanner
}

// startPrinter starts a command. All its threads stay on the core.
func startPrinter(cmd *exec.Cmd, core int) (*printer, error) {
	p := &printer{cmd: cmd}
	cmd.Stderr = &p.stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.lines = bufio.NewScanner(out)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	anywhere, err := thread.Keep(core)
	if err != nil {
		return nil, fmt.Errorf("keep %s to core %d: %w", cmd.Path, core, err)
	}
	return p, errors.Join(cmd.Start(), anywhere())
}

// next returns the next line that is not blank, or nil after the last one. The line is valid until
// the next call.
func (p *printer) next() []byte {
	for p.lines.Scan() {
		if line := p.lines.Bytes(); len(bytes.TrimSpace(line)) > 0 {
			return line
		}
	}
	return nil
}

// end waits until the program exits. Its error includes the program's stderr.
func (p *printer) end() error {
	if err := errors.Join(p.lines.Err(), p.cmd.Wait()); err != nil {
		return fmt.Errorf("%s: %w: %s", p.cmd.Path, err, p.stderr.Bytes())
	}
	return nil
}

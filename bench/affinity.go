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

	captured "vitrine/affinity/message"
	"vitrine/internal/thread"
	"vitrine/wire/diameter"
)

// The capture that the programs read. tshark's time per packet grows with the capture, to minutes
// for all of it. So tshark reads all of it once, and in each round only its first packets, which
// favors tshark.
const (
	comparedPackets = 500_000
	peerPackets     = 50_000
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
	vitrine   string // program
	capture   string
	beginning string // the first peerPackets of the capture
	messages  uint64 // in the capture
	core      int
}

// affinityFields compares how fast this program and tshark print the same fields of the SIP and
// Diameter messages of one capture. A second row compares vitrine affinity with tshark; vitrine
// affinity also finds the transactions. A third row compares one run of both programs over the
// whole capture.
func affinityFields(ctx context.Context, dir string, progress io.Writer) ([]Row, error) {
	c, err := newContest(ctx, dir)
	if err != nil {
		return nil, err
	}
	whole, err := c.agree(ctx) // also loads the capture into the page cache
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(progress, "  both print the same %d lines; ours %.0f packets/s, tshark %.0f\n", c.messages, whole.Ours[0], whole.Theirs[0])
	beginning := func(ctx context.Context) (*printer, error) { return c.theirs(ctx, c.beginning) }
	all, err := runRounds(ctx, minRounds, []side{
		readingRate(c.ours, comparedPackets), readingRate(beginning, peerPackets), readingRate(c.analysis, comparedPackets),
	}, progress)
	if err != nil {
		return nil, err
	}
	const unit, peer = "packets/s of CPU time on one core", "tshark -T fields, the same fields of SIP and Diameter"
	fields, err := Pairs{all[0], all[1]}.row("affinity/fields", unit, fmt.Sprintf("%s, of the first %d packets", peer, peerPackets), ">= 20")
	if err != nil {
		return nil, err
	}
	analysis, err := Pairs{all[2], all[1]}.row("affinity/fields/analysis", unit, "the same; ours is vitrine affinity, with transactions and aggregates", "")
	if err != nil {
		return nil, err
	}
	once, err := whole.row("affinity/fields/whole", unit, peer+", of the whole capture, one run", ">= 20")
	return []Row{fields, analysis, once}, err
}

// newContest writes the capture and builds vitrine.
func newContest(ctx context.Context, dir string) (*contest, error) {
	if err := programs("tshark"); err != nil {
		return nil, err
	}
	c := &contest{capture: filepath.Join(dir, "load.pcap"), beginning: filepath.Join(dir, "beginning.pcap")}
	cores, err := thread.Allowed()
	if err != nil {
		return nil, err
	}
	c.core = cores[len(cores)-1]
	if c.vitrine, err = product(ctx, dir); err != nil {
		return nil, err
	}
	has, err := writeCapture(c.capture, comparedPackets)
	if err != nil {
		return nil, err
	}
	c.messages = has.messages
	_, err = writeCapture(c.beginning, peerPackets)
	return c, err
}

// writeCapture writes a capture of the load. Shorter captures are beginnings of longer ones.
func writeCapture(path string, packets int) (has signalled, err error) {
	file, err := os.Create(path)
	if err != nil {
		return has, err
	}
	has, err = writeSignalling(file, packets, comparedRate)
	return has, errors.Join(err, file.Close())
}

func (c *contest) ours(ctx context.Context) (*printer, error) {
	return startPrinter(exec.CommandContext(ctx, self(), fieldsCommand, c.capture), c.core)
}

func (c *contest) theirs(ctx context.Context, capture string) (*printer, error) {
	args := []string{"-n", "-r", capture, "-T", "fields"}
	for _, field := range tsharkFields {
		args = append(args, "-e", field)
	}
	return startPrinter(exec.CommandContext(ctx, "tshark", args...), c.core)
}

func (c *contest) analysis(ctx context.Context) (*printer, error) {
	return startPrinter(exec.CommandContext(ctx, c.vitrine, "affinity", c.capture), c.core)
}

// readingRate returns a side that measures how many packets a program reads per second of CPU time.
func readingRate(start func(context.Context) (*printer, error), packets float64) side {
	return func(ctx context.Context) (float64, error) {
		p, err := start(ctx)
		if err != nil {
			return 0, err
		}
		for p.next() != nil { // agree has compared the lines
		}
		if err := p.end(); err != nil {
			return 0, err
		}
		return packets / cpuSeconds(p.cmd), nil
	}
}

// agree checks that both programs print the same line for each message of the whole capture. It
// returns how many packets each read per second of CPU time.
func (c *contest) agree(ctx context.Context) (Pairs, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ours, err := c.ours(ctx)
	if err != nil {
		return Pairs{}, err
	}
	theirs, err := c.theirs(ctx, c.capture)
	if err != nil {
		cancel()
		return Pairs{}, errors.Join(err, ours.end())
	}
	n, err := sameLines(ours, theirs)
	if err != nil && ctx.Err() == nil {
		cancel()
		return Pairs{}, errors.Join(err, ours.end(), theirs.end())
	}
	// If the context ended, the programs were killed and their last lines may be truncated.
	if err := errors.Join(ctx.Err(), ours.end(), theirs.end()); err != nil {
		return Pairs{}, err
	}
	if n != c.messages {
		return Pairs{}, fmt.Errorf("the capture has %d messages, and the programs print %d", c.messages, n)
	}
	return Pairs{[]float64{comparedPackets / cpuSeconds(ours.cmd)}, []float64{comparedPackets / cpuSeconds(theirs.cmd)}}, nil
}

// sameLines counts the lines that both programs print, up to the first that differs.
func sameLines(ours, theirs *printer) (n uint64, err error) {
	for ; ; n++ {
		line, other := ours.next(), theirs.next()
		if line == nil && other == nil {
			return n, nil
		}
		if want := asOurs(string(other)); string(line) != want {
			return n, fmt.Errorf("message %d: ours is %q, tshark's is %q", n+1, line, want)
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
	return p, startOn(cmd, core, nil)
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

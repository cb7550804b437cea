package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"vitrine"
	captured "vitrine/affinity/message"
)

// The size of the affinity benches.
const (
	comparedPackets = 500_000
	comparedRate    = 20_000 // packets a second of the capture

	fewPackets  = 100_000
	manyPackets = 10_000_000
	steadyRate  = 1000 // the tables for answers and retransmissions reach back 64 s, which is less than fewPackets
)

// fieldsCommand is the first argument of this program when it prints the fields of a
// capture's messages.
const fieldsCommand = "fields"

// fieldsRead is what the process of fieldsCommand reports.
type fieldsRead struct {
	Messages uint64
	GivenUp  captured.GivenUp
	Peak     int64 // resident memory, in bytes
}

// affinityFields compares how fast two programs print the same fields of the SIP and
// Diameter messages of one capture: packets per second of CPU time.
func affinityFields(ctx context.Context, dir string, progress io.Writer) ([]Row, error) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		return nil, &vitrine.Unsupported{What: "affinity/fields", Missing: "tshark", Do: "install tshark"}
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	capture := filepath.Join(dir, "load.pcap")
	file, err := os.Create(capture)
	if err != nil {
		return nil, err
	}
	messages, err := writeSignalling(file, comparedPackets, comparedRate)
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	ours := func(ctx context.Context) (float64, error) {
		cmd := exec.CommandContext(ctx, self, fieldsCommand, capture)
		cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
		return packetsPerCPU(cmd, messages)
	}
	theirs := func(ctx context.Context) (float64, error) {
		args := []string{"-n", "-r", capture, "-T", "fields"}
		for _, field := range []string{"sip.Method", "sip.Status-Code", "sip.Call-ID", "sip.Via.branch", "sip.from.addr", "sip.to.addr",
			"diameter.cmd.code", "diameter.hopbyhopid", "diameter.Session-Id", "diameter.User-Name", "diameter.Public-Identity"} {
			args = append(args, "-e", field)
		}
		return packetsPerCPU(exec.CommandContext(ctx, tshark, args...), messages)
	}
	pairs, err := interleave(ctx, minRounds, ours, theirs, progress)
	if err != nil {
		return nil, err
	}
	row, err := pairs.row("affinity/fields", "packets/s of one CPU", "tshark -T fields, the same fields of SIP and Diameter", ">= 20")
	return []Row{row}, err
}

// packetsPerCPU runs a program that prints a line with fields for each message, and
// returns how many packets it reads in a second of CPU time.
func packetsPerCPU(cmd *exec.Cmd, messages uint64) (float64, error) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	lines := uint64(0)
	scanner := bufio.NewScanner(out)
	for scanner.Scan() {
		if len(bytes.TrimSpace(scanner.Bytes())) > 0 {
			lines++
		}
	}
	if err := errors.Join(scanner.Err(), cmd.Wait()); err != nil {
		return 0, fmt.Errorf("%w: %s", err, stderr.Bytes())
	}
	if lines != messages {
		return 0, fmt.Errorf("%s printed %d messages, want %d", cmd.Path, lines, messages)
	}
	cpu := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return comparedPackets / cpu.Seconds(), nil
}

// affinityMemory compares the peak memory after many packets of steady load with that
// after few.
func affinityMemory(ctx context.Context, dir string, progress io.Writer) ([]Row, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	pipe := filepath.Join(dir, "load")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		return nil, err
	}
	peak := func(packets int) (float64, error) {
		cmd := exec.CommandContext(ctx, self, fieldsCommand, pipe)
		var report bytes.Buffer
		cmd.Stderr = &report
		if err := cmd.Start(); err != nil {
			return 0, err
		}
		out, err := os.OpenFile(pipe, os.O_WRONLY, 0)
		if err != nil {
			return 0, errors.Join(err, cmd.Process.Kill(), cmd.Wait())
		}
		messages, err := writeSignalling(out, packets, steadyRate)
		if err = errors.Join(err, out.Close(), cmd.Wait()); err != nil {
			return 0, err
		}
		var read fieldsRead
		if err := json.Unmarshal(report.Bytes(), &read); err != nil {
			return 0, err
		}
		if read.Messages != messages || read.GivenUp != (captured.GivenUp{}) {
			return 0, fmt.Errorf("%d of %d messages were read, given up: %+v", read.Messages, messages, read.GivenUp)
		}
		fmt.Fprintf(progress, "  %d packets: %.1f MiB\n", packets, float64(read.Peak)/(1<<20))
		return float64(read.Peak) / (1 << 20), nil
	}
	few, err := peak(fewPackets)
	if err != nil {
		return nil, err
	}
	many, err := peak(manyPackets)
	if err != nil {
		return nil, err
	}
	row, err := Pairs{Ours: []float64{many}, Theirs: []float64{few}}.row("affinity/memory", "MiB at the peak",
		fmt.Sprintf("itself after %d packets; ours is after %d", fewPackets, manyPackets), "<= 1.25")
	return []Row{row}, err
}

// printFields prints the fields of each message of a capture on a line, and then what was
// read.
func printFields(ctx context.Context, capture string, out, report io.Writer) error {
	w := bufio.NewWriterSize(out, 64<<10)
	var line []byte
	s, err := captured.Read(ctx, []string{capture}, captured.Options{}, func(m *captured.Message) error {
		line = append(line[:0], m.Name...)
		for i := range m.Identifiers {
			line = append(line, '\t')
			line = append(line, m.Identifiers[i].Text...)
		}
		_, err := w.Write(append(line, '\n'))
		return err
	})
	if err = errors.Join(err, w.Flush()); err != nil {
		return err
	}
	peak, err := peakMemory()
	if err != nil {
		return err
	}
	return json.NewEncoder(report).Encode(fieldsRead{Messages: s.Messages, GivenUp: s.GivenUp, Peak: peak})
}

// peakMemory returns the highest resident memory of this process, in bytes (proc(5)).
func peakMemory() (int64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	number, _, ok := strings.Cut(strings.TrimSpace(rest), " kB")
	if !ok {
		return 0, errors.New("/proc/self/status has no VmHWM")
	}
	n, err := strconv.ParseInt(number, 10, 64)
	return n << 10, err
}

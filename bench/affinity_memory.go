package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"

	"vitrine/affinity"
	captured "vitrine/affinity/message"
	"vitrine/internal/hosttest"
)

// The loads under which memory is measured.
const (
	fewPackets  = 100_000
	tenfold     = 1_000_000
	manyPackets = 10_000_000
	steadyRate  = 1000 // packets per second of capture time; fewPackets last 100 s, longer than the 64 s that the longest table reaches back
)

// flat bounds the ratio of the peaks. A table that kept 16 bytes of each call would need 14 MiB
// more after manyPackets, which have 909,000 calls. 14 MiB is 15% of the 93 MiB after fewPackets.
// Peaks of one load differ by less than 1% between rounds.
const flat = "<= 1.1"

// affinityMemory compares the peak memory of vitrine affinity after manyPackets, and after tenfold
// packets, with the peak after fewPackets.
func affinityMemory(ctx context.Context, dir string, progress io.Writer) ([]Row, error) {
	program, err := product(ctx, dir)
	if err != nil {
		return nil, err
	}
	after := func(packets int) side {
		return func(ctx context.Context) (float64, error) { return peakOfAnalysis(ctx, program, packets) }
	}
	all, err := runRounds(ctx, minRounds, []side{after(manyPackets), after(tenfold), after(fewPackets)}, progress)
	if err != nil {
		return nil, err
	}
	var rows []Row
	for i, packets := range []int{manyPackets, tenfold} {
		row, err := Pairs{all[i], all[2]}.row(fmt.Sprintf("affinity/memory/%d", packets), "MiB at the peak",
			fmt.Sprintf("the same after %d packets", fewPackets), flat)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// peakOfAnalysis sends packets of a steady load through a pipe to vitrine affinity. It returns the
// peak of the program's resident memory in MiB.
func peakOfAnalysis(ctx context.Context, program string, packets int) (float64, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer read.Close() // errors do not matter: the pipe was read to its end
	cmd := exec.CommandContext(ctx, program, "affinity", "--json", "/dev/stdin")
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = write, &stderr
	in, err := cmd.StdinPipe()
	// The pipe holds one page, and the result is longer than that. So when the peak is read, the
	// process has done all its work and still runs.
	_, sizeErr := unix.FcntlInt(write.Fd(), unix.F_SETPIPE_SZ, os.Getpagesize())
	if err = errors.Join(err, sizeErr); err == nil {
		err = cmd.Start()
	}
	if err = errors.Join(err, write.Close()); err != nil {
		return 0, err
	}
	has, err := writeSignalling(in, packets, steadyRate)
	err = errors.Join(err, in.Close())
	text := make([]byte, 1)
	_, readErr := io.ReadFull(read, text)
	_, peak, peakErr := hosttest.Memory(cmd.Process.Pid)
	rest, restErr := io.ReadAll(read)
	if err = errors.Join(err, readErr, peakErr, restErr, cmd.Wait()); err != nil {
		return 0, fmt.Errorf("%w: %s", err, stderr.Bytes())
	}
	a, err := affinity.Parse(append(text, rest...))
	if err != nil {
		return 0, err
	}
	return float64(peak) / (1 << 20), understood(a.Captured, has)
}

// understood checks that the analysis found every message, made each call a transaction, and gave
// up on no message.
func understood(c *affinity.Captured, has signalled) error {
	if c.Read.Messages != has.messages || c.Correlated.Transactions != has.calls || c.Correlated.GivenUp > 0 || c.Read.GivenUp != (captured.GivenUp{}) {
		return fmt.Errorf("found %d of %d messages and %d transactions of %d calls, gave up on %d %+v",
			c.Read.Messages, has.messages, c.Correlated.Transactions, has.calls, c.Correlated.GivenUp, c.Read.GivenUp)
	}
	return nil
}

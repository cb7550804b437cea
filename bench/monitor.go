package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"vitrine"
	"vitrine/monitor"
)

// The size of the monitor bench. A round is long enough that the start of a Go
// process does not matter.
const (
	watchedInstances = 50
	watchInterval    = 100 * time.Millisecond
	watchSamples     = 100
)

// watchCommand is the first argument of this program when it runs as the
// monitoring process.
const watchCommand = "watch"

//go:embed reader/reader.c
var readerSource []byte

// monitorBench compares the CPU time of two processes. Ours watches 50 instances at 10 Hz and
// writes the rows. Theirs is a C program that reads the same files as often and does nothing else.
// The CPU time covers the whole process, from start to exit. It is divided by the number of
// samples, because the monitor skips samples that a busy host makes late.
func monitorBench(ctx context.Context, dir string, progress io.Writer) (rows []Row, err error) {
	reader, err := compileC(ctx, dir, "reader", readerSource)
	if err != nil {
		return nil, err
	}
	watched, err := startSleepers(ctx, watchedInstances)
	defer func() { err = errors.Join(err, watched.remove()) }()
	if err != nil {
		return nil, err
	}
	vantages, err := json.Marshal(watched.vantages())
	if err != nil {
		return nil, err
	}
	ours := func(ctx context.Context) (float64, error) {
		return cpuPerSample(exec.CommandContext(ctx, self(), watchCommand, filepath.Join(dir, "usage.csv")), vantages)
	}
	theirs := func(ctx context.Context) (float64, error) {
		return cpuPerSample(exec.CommandContext(ctx, reader, strconv.FormatInt(watchInterval.Microseconds(), 10),
			strconv.Itoa(watchSamples)), watched.files())
	}
	return compareSides(ctx, minRounds, "monitor", "CPU us/sample", "C that preads the same files", "<= 1.5", ours, theirs, progress)
}

// watch is the measured process. It watches the vantages from standard input,
// writes the rows to the file and prints how many samples it took.
func watch(ctx context.Context, file string, in io.Reader, samples io.Writer) (err error) {
	var vantages []vitrine.Vantage
	if err := json.NewDecoder(in).Decode(&vantages); err != nil {
		return fmt.Errorf("read the vantages: %w", err)
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	m, err := monitor.Start(ctx, monitor.Config{Interval: watchInterval}, vantages, out)
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-time.After(watchSamples * watchInterval):
	}
	if err := m.Stop(); err != nil {
		return err
	}
	for instance, use := range m.Use(time.Now().Add(-watchSamples*watchInterval), time.Now()) {
		if len(use.Missing) > 0 {
			return fmt.Errorf("%s: some counters could not be read: %v", instance, use.Missing)
		}
	}
	fmt.Fprintln(samples, watchSamples-m.Missed())
	return ctx.Err()
}

// cpuPerSample runs the command until it exits. It returns the user and system time per sample in
// us. The command prints its number of samples.
func cpuPerSample(command *exec.Cmd, stdin []byte) (float64, error) {
	command.Stdin = bytes.NewReader(stdin)
	out, err := finish(command, (*exec.Cmd).Start)
	if err != nil {
		return 0, err
	}
	samples, err := strconv.Atoi(strings.TrimSpace(out))
	if err != nil || samples < 1 {
		return 0, fmt.Errorf("%s took %q samples: want at least one", command.Path, out)
	}
	return cpuSeconds(command) * 1e6 / float64(samples), nil
}

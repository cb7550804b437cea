package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"vitrine/load"
	"vitrine/load/http"
	"vitrine/load/s1ap"
	"vitrine/load/sip"
	"vitrine/load/sipp"
)

// The trial of both generators: reg-dereg, at a rate that SIPp can hold.
const (
	sipRate     = 4000 // calls per second
	sipDuration = 5    // seconds
)

// generateCommand is the first argument of this program when it runs as the
// built-in generator.
const generateCommand = "generate"

//go:embed responder/responder.c
var responderSource []byte

// loadSIP compares how many calls the built-in generator and SIPp make per second of CPU time. The
// CPU time is that of the whole generator process. Both call the same responder in C. The built-in
// generator prints the report of package load. SIPp runs in two ways: with its own statistics and
// error log, and in addition with the message log that the same report needs (package load/sipp).
func loadSIP(ctx context.Context, dir string, progress io.Writer) (rows []Row, err error) {
	version, err := sipp.Version(ctx)
	if err != nil {
		return nil, err
	}
	responder, err := compileC(ctx, dir, "responder", responderSource)
	if err != nil {
		return nil, err
	}
	if err := writeSIPpFiles(dir); err != nil {
		return nil, err
	}
	against := func(measure func(context.Context, string) (float64, error)) side {
		return func(ctx context.Context) (float64, error) { return withResponder(ctx, responder, measure) }
	}
	ours := against(builtInCalls)
	for _, other := range []struct {
		name, against string
		args          []string
	}{
		{"load/sip", "SIPp " + version, nil},
		{"load/sip/report", "SIPp " + version + ", logging what the same report takes", []string{"-trace_shortmsg", "-shortmessage_file", "messages.csv"}},
	} {
		theirs := against(func(ctx context.Context, target string) (float64, error) {
			return sippCalls(ctx, dir, target, other.args)
		})
		row, err := compareSides(ctx, minRounds, other.name, "calls/CPU-s", other.against, ">= 3", ours, theirs, progress)
		if err != nil {
			return rows, err
		}
		rows = append(rows, row...)
	}
	return rows, nil
}

// writeSIPpFiles writes the scenario and its subscribers.
func writeSIPpFiles(dir string) error {
	scenario, err := fs.ReadFile(sipp.Scenarios(), sip.RegDereg+".xml")
	if err != nil {
		return err
	}
	users := bytes.NewBufferString("SEQUENTIAL\n")
	for i := range sipRate * sipDuration {
		fmt.Fprintf(users, "sub%06d;ims.test;[authentication username=sub%06d@ims.test password=pw-sub%06d]\n", i, i, i)
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, "scenario.xml"), scenario, 0o600),
		os.WriteFile(filepath.Join(dir, "users.csv"), users.Bytes(), 0o600))
}

// withResponder runs the measurement against a fresh responder.
func withResponder(ctx context.Context, program string, measure func(context.Context, string) (float64, error)) (calls float64, err error) {
	responder, err := startHelper(exec.CommandContext(ctx, program, "127.0.0.1", "0"), (*exec.Cmd).Start)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, responder.close()) }()
	port, err := responder.line()
	if err != nil {
		return 0, fmt.Errorf("the responder did not start: %w", err)
	}
	return measure(ctx, "127.0.0.1:"+port)
}

// runBuiltIn runs a built-in generator in a process of its own, which start starts. It returns the
// report, and the CPU time of the process in seconds.
func runBuiltIn(ctx context.Context, start func(*exec.Cmd) error, name string, trial load.Trial) (report load.Report, cpu float64, err error) {
	c := load.Command([]string{self(), generateCommand, name}, trial)
	cmd := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...)
	out, err := finish(cmd, start)
	if err != nil {
		return report, 0, fmt.Errorf("the built-in generator: %w", err)
	}
	report, err = readReport(strings.NewReader(out))
	return report, cpuSeconds(cmd), err
}

// readReport reads a generator's report. If the generator could not run its trial, that is the error.
func readReport(r io.Reader) (load.Report, error) {
	report, err := load.ParseReport(r)
	if err == nil && report.Error != "" {
		err = errors.New(report.Error)
	}
	if err != nil {
		return report, fmt.Errorf("the generator: %w", err)
	}
	return report, nil
}

// builtInCalls returns the built-in generator's calls per second of CPU time.
func builtInCalls(ctx context.Context, target string) (float64, error) {
	report, cpu, err := runBuiltIn(ctx, (*exec.Cmd).Start, "sip", load.Trial{Rate: sipRate, Duration: sipDuration, Targets: []string{target}})
	if err == nil && report.Succeeded == 0 {
		err = fmt.Errorf("the built-in generator made no calls: %v", report.Failed)
	}
	return float64(report.Succeeded) / cpu, err
}

// sippCalls returns SIPp's successful calls per second of CPU time.
func sippCalls(ctx context.Context, dir, target string, more []string) (float64, error) {
	calls := strconv.Itoa(sipRate * sipDuration)
	args := append([]string{
		target, "-sf", "scenario.xml", "-inf", "users.csv", "-i", "127.0.0.1", "-nostdin", "-nr",
		"-r", strconv.Itoa(sipRate), "-m", calls, "-l", calls, "-recv_timeout", "10000",
		"-default_behaviors", "abortunexp", "-auth_uri", "ims.test", "-buff_size", strconv.Itoa(8 << 20),
		"-trace_err", "-error_file", "errors.log", "-trace_stat", "-stf", "statistics.csv", "-fd", "1",
	}, more...)
	cmd := exec.CommandContext(ctx, "sipp", args...)
	cmd.Dir = dir
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 1 { // exit code 1: some calls failed; they do not count
		err = nil
	}
	if err != nil {
		return 0, fmt.Errorf("SIPp: %w", err)
	}
	made, failed, err := sipp.Totals(filepath.Join(dir, "statistics.csv"))
	if err != nil || made == failed {
		return 0, fmt.Errorf("SIPp made %d calls, %d failed: %w", made, failed, err)
	}
	return float64(made-failed) / cpuSeconds(cmd), nil
}

// generate runs the built-in generator, whose process is measured: `bench generate NAME OPTION...`.
func generate(ctx context.Context, args []string) error {
	trial, err := load.ReadTrial(args[1:], os.Environ())
	if err != nil {
		return err
	}
	runtime.GOMAXPROCS(1) // as in vitrine generate
	run := sip.Run
	switch args[0] {
	case "http":
		run = http.Run
	case "s1ap":
		run = s1ap.Run
	}
	return run(ctx, trial, os.Stdout, os.Stderr)
}

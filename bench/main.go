// Command bench measures how fast the product is. Each figure is a ratio
// against a named peer or baseline; both sides are measured alternately in the
// same run.
//
//	go run ./bench [NAME]
//
// It prints a table and writes bench.json, one Row per line. A row that misses
// its aim is a result, not a failure: the exit code is 0 unless a bench could
// not run (1) or its name is unknown (2).
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"vitrine"
	"vitrine/fabric/impair"
)

// A bench measures one thing. Its rows are named name or name/part.
type bench struct {
	name string
	run  measurement
}

type measurement func(ctx context.Context, progress io.Writer) ([]Row, error)

// inFolder wraps a bench that needs a temporary folder. If the bench fails, it keeps the folder with
// the logs, and names it in the error.
func inFolder(of func(ctx context.Context, dir string, progress io.Writer) ([]Row, error)) measurement {
	return func(ctx context.Context, progress io.Writer) (rows []Row, err error) {
		dir, err := os.MkdirTemp("", "bench-")
		if err != nil {
			return nil, err
		}
		rows, err = of(ctx, dir, progress)
		if err != nil && !vitrine.IsUnsupported(err) && ctx.Err() == nil {
			return rows, fmt.Errorf("%w (its files stay in %s)", err, dir)
		}
		return rows, errors.Join(err, os.RemoveAll(dir))
	}
}

// benches returns every bench that runs by default, in the order of the table.
func benches() []bench {
	return []bench{
		{"load/sip", inFolder(loadSIP)},
		{"load/http", onStage(loadHTTP)},
		{"load/s1ap", inFolder(loadS1AP)},
		{"monitor", inFolder(monitorBench)},
		{"trial", inFolder(trialBench)},
		{"search/rate", inFolder(searchRate)},
		{"search/size", inFolder(searchSize)},
		{"flex/decide", flexDecide},
		{"flex/instance-seconds", flexInstanceSeconds},
		{"director/sip", onStage(directorSIP)},
		{"director/sip/responses", onStage(directorResponses)},
		{"director/sip/latency", onStage(directorLatency)},
		{"director/gtpc", onStage(directorGTPC)},
		{"director/s1ap", onStage(directorS1AP)},
		{"director/weights", onStage(directorWeights)},
		{"store/writes", onStage(storeWrites)},
		{"store/reads", onStage(storeReads)},
		{"network/bulk", networkBulk},
		{"network/scheduled", networkScheduled},
		{"network/schedule-error", networkScheduleError},
		{"network/namespaces", inFolder(networkNamespaces)},
		{"network/impair", networkImpair},
		{"affinity/fields", inFolder(affinityFields)},
		{"affinity/memory", inFolder(affinityMemory)},
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if is, err := part(ctx, os.Args[1:]); is {
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[1], err)
			os.Exit(1)
		}
		return
	}
	os.Exit(run(ctx, os.Args[1:], "bench.json", os.Stdout, os.Stderr))
}

// part runs a helper process of a bench. is reports whether the arguments ask for one.
func part(ctx context.Context, args []string) (is bool, err error) {
	if len(args) < 2 {
		return false, nil
	}
	switch args[0] {
	case generateCommand:
		return true, generate(ctx, args[1:])
	case watchCommand:
		return true, watch(ctx, args[1], os.Stdin, os.Stdout)
	case fieldsCommand:
		return true, printFields(ctx, args[1], os.Stdout)
	case putCommand:
		return true, put(ctx, args[1:], os.Stdout)
	case reweighCommand:
		return true, reweigh(ctx, args[1:])
	case playS1APCommand:
		return true, playS1AP(ctx, args[1:], os.Stdin, os.Stdout)
	case answerCommand:
		return true, answer(args[1:], os.Environ(), os.Stdout)
	case impair.Verb:
		return true, impair.Serve(ctx, time.Now, os.Stdin, os.Stdout)
	}
	return false, nil
}

// self returns the path of this program, which runs its parts.
func self() string {
	path, err := os.Executable()
	if err != nil {
		panic(err) // Linux without /proc, where no bench can run
	}
	return path
}

// run is main without the process boundary. It returns the exit code.
func run(ctx context.Context, args []string, file string, out, progress io.Writer) int {
	all := benches()
	if len(args) > 0 && args[0] != "" {
		// These take hours or write committed records, so they run only by name.
		all = slices.Concat(all, overloadBenches(), truthBenches(), realBenches(), []bench{
			{"search/ablation", inFolder(searchAblation)}, {"flex/burst", inFolder(flexBurst)}, {"flex/simulated", flexSimulated}, {"redline/agrees", inFolder(redlineAgrees)},
			{"demo", inFolder(demoBench)},
		})
	}
	chosen, err := choose(all, args)
	if err != nil {
		fmt.Fprintln(progress, "bench:", err)
		return 2
	}
	rows, failed := measure(ctx, chosen, progress)
	printTable(out, rows)
	if err := writeRows(file, rows); err != nil {
		failed = errors.Join(failed, err)
	}
	if failed != nil {
		fmt.Fprintln(progress, "bench:", failed)
		return 1
	}
	return 0
}

// choose returns the bench with the name, or all benches below the name: load
// selects load/sip and load/http.
func choose(all []bench, args []string) ([]bench, error) {
	var names []string
	for _, b := range all {
		names = append(names, b.name)
	}
	switch {
	case len(args) == 0 || len(args) == 1 && args[0] == "":
		return all, nil
	case len(args) > 1:
		return nil, fmt.Errorf("want one name or none, of: %s", strings.Join(names, ", "))
	}
	var chosen []bench
	for _, b := range all {
		if b.name == args[0] || strings.HasPrefix(b.name, args[0]+"/") {
			chosen = append(chosen, b)
		}
	}
	if len(chosen) > 0 {
		return chosen, nil
	}
	return nil, fmt.Errorf("no bench %q; there are: %s", args[0], strings.Join(names, ", "))
}

// measure runs the benches one after the other. If this host does not support a
// bench, the result is a row with the reason. Any other error does not stop the
// other benches.
func measure(ctx context.Context, chosen []bench, progress io.Writer) (rows []Row, failed error) {
	for _, b := range chosen {
		fmt.Fprintf(progress, "bench: %s\n", b.name)
		got, err := b.run(ctx, progress)
		rows = append(rows, got...)
		switch {
		case vitrine.IsUnsupported(err):
			rows = append(rows, Row{Name: b.name, Reason: err.Error()})
		case err != nil:
			failed = errors.Join(failed, fmt.Errorf("%s: %w", b.name, err))
		}
		if ctx.Err() != nil {
			return rows, errors.Join(failed, ctx.Err())
		}
	}
	return rows, failed
}

// writeRows writes one JSON object per line.
func writeRows(file string, rows []Row) (err error) {
	f, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("write the figures: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	enc := json.NewEncoder(f)
	enc.SetEscapeHTML(false)
	for _, r := range rows {
		if err := enc.Encode(r); err != nil {
			return fmt.Errorf("write the figures to %s: %w", file, err)
		}
	}
	return nil
}

// Command vitrine characterises network functions: it deploys them at different sizes,
// drives them at rising rates and reports their capacities.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"vitrine"
	"vitrine/fabric/impair"
	"vitrine/internal/repeat"
	"vitrine/internal/runstate"
	"vitrine/substrate"
)

// Exit codes, the same for every verb.
const (
	exitDone        = 0
	exitFailed      = 1
	exitBadInput    = 2
	exitUnsupported = 3
	exitInterrupted = 130
)

// errInterrupted is the cancellation cause after a signal.
var errInterrupted = errors.New("interrupted")

func main() {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, endingSignals(os.Args[1:])...)
	go endOn(signals, cancel, os.Exit)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// hurry is the shortest time between two signals of a user. GNU timeout sends two at once: to the program and
// to its process group.
const hurry = 200 * time.Millisecond

// endOn lets the program end in order after the first signal. A second signal of the user ends the program at once,
// and leaves the rest to `vitrine clean`. SIGHUP is no such signal: when a terminal closes, both the shell and the
// kernel send it, and systemd sends it after SIGTERM when a login session ends.
func endOn(signals <-chan os.Signal, cancel context.CancelCauseFunc, exit func(code int)) {
	<-signals
	cancel(errInterrupted)
	first := time.Now()
	for s := range signals {
		if s != syscall.SIGHUP && time.Since(first) > hurry {
			exit(exitInterrupted)
		}
	}
}

// endingSignals returns the signals that end the program. A service takes SIGHUP to reload
// its configuration instead. nohup starts the program with SIGHUP ignored, and it stays ignored.
func endingSignals(args []string) []os.Signal {
	words := slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return strings.HasPrefix(arg, "-") }) // such as -v before the verb
	line := strings.Join(words, " ") + " "
	if signal.Ignored(syscall.SIGHUP) || slices.ContainsFunc(servingVerbs(), func(verb string) bool { return strings.HasPrefix(line, verb+" ") }) {
		return []os.Signal{os.Interrupt, syscall.SIGTERM}
	}
	return []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}
}

// servingVerbs returns the verbs that run as services or as parts of one, and handle SIGHUP
// themselves, or ignore it.
func servingVerbs() []string {
	return []string{"director", "store", "flex run", "flex " + holdVerb, impair.Verb}
}

// serviceSignals returns channels that receive a value on SIGHUP (reload) and SIGUSR2 (restart).
func serviceSignals() (reload, restart <-chan struct{}, stop func()) {
	outliveReaders()
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGUSR2)
	hup, usr2, done := make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{})
	go func() {
		for {
			to := hup
			select {
			case s := <-signals:
				if s == syscall.SIGUSR2 {
					to = usr2
				}
			case <-done:
				return
			}
			select {
			case to <- struct{}{}:
			default: // a signal is already pending
			}
		}
	}()
	return hup, usr2, func() {
		signal.Stop(signals)
		close(done)
	}
}

// outliveReaders lets the program go on when nobody reads stdout or stderr any more, for example
// after the end of an ssh session. Writes to them then fail, but no longer end the program. Verbs
// that only print do not call it, so that they end in `vitrine ... | head`.
func outliveReaders() { outlive(syscall.SIGPIPE) }

// outlive lets the program go on after a signal.
func outlive(s os.Signal) {
	signal.Notify(make(chan os.Signal, 1), s) // child processes would inherit signal.Ignore
}

// run runs the whole program and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot(stdout, stderr)
	root.SetArgs(args)
	c, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitDone
	}
	if status, ok := errors.AsType[exitStatus](err); ok {
		return int(status)
	}
	fmt.Fprintln(stderr, "vitrine:", substrate.Printable(err.Error())) // it may quote a hostile instance
	switch c.CommandPath() {
	case "vitrine director run", "vitrine store run", "vitrine flex run":
		ctx = context.WithoutCancel(ctx) // a signal ends a service without an error, so the error has another cause
	}
	return exitCode(ctx, err)
}

// startError returns the error of a service that does not start. If a signal has ended the start, that is no error.
func startError(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}

// exitStatus is an error whose message is already printed.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

func exitCode(ctx context.Context, err error) int {
	switch {
	case errors.Is(err, errInterrupted) || errors.Is(context.Cause(ctx), errInterrupted):
		return exitInterrupted
	case vitrine.IsBadInput(err):
		return exitBadInput
	case vitrine.IsUnsupported(err):
		return exitUnsupported
	}
	return exitFailed
}

// An app is the state that all verbs share.
type app struct {
	stdout, stderr io.Writer
	verbose        bool
	cpuLocks       string // folder of the CPU lock files
}

func newRoot(stdout, stderr io.Writer) *cobra.Command {
	a := &app{stdout: stdout, stderr: stderr, cpuLocks: runstate.CPULockDir}
	root := &cobra.Command{
		Use:   "vitrine",
		Short: "Characterise network functions: capacity, bottleneck, best size",
		Long: "Vitrine deploys a network function at different sizes, drives it at rising rates,\n" +
			"watches CPU, memory and network of every instance, and reports the capacity of\n" +
			"each size, the bottleneck component and the best size. It also measures networks\n" +
			"packet by packet, and runs functions that are bundled into aggregates.",
		Version:       versionText(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          checkVerb,
		RunE:          showHelp,
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.PersistentFlags().BoolVarP(&a.verbose, "verbose", "v", false, "log every change to the host")
	wrongFlags := func(c *cobra.Command, err error) error {
		return &vitrine.BadInput{File: c.CommandPath(), Found: err.Error(), Want: "see " + c.CommandPath() + " --help"}
	}
	root.SetFlagErrorFunc(wrongFlags)
	root.PersistentPreRunE = func(c *cobra.Command, _ []string) error {
		// Cobra checks the flags again later, but its errors would give exit code 1.
		if err := errors.Join(c.ValidateRequiredFlags(), c.ValidateFlagGroups()); err != nil {
			return wrongFlags(c, err)
		}
		return nil
	}
	root.AddCommand(
		a.characterizeCommand(), a.validateCommand(), a.reportCommand(), a.compareCommand(),
		a.doctorCommand(), a.cleanCommand(), a.reproduceCommand(), a.referenceCommand(),
		a.generateCommand(), a.simulateCommand(), a.predictCommand(), a.schemaCommand(), a.storeCommand(), a.versionCommand(), a.manCommand(),
		a.directorCommand(), a.redlineCommand(), a.imageCommand(), a.insideCommand(), a.guestCommand(), a.impairCommand(), a.measureCommand(), a.affinityCommand(), a.flexCommand(),
	)
	return root
}

func (a *app) log() *slog.Logger { return a.logFrom(slog.LevelWarn) }

// logFrom logs lines from the level on, or all lines with --verbose. It limits repeated lines,
// because a service runs for years and remote peers can cause log lines.
func (a *app) logFrom(level slog.Level) *slog.Logger {
	if a.verbose {
		level = slog.LevelDebug
	}
	return slog.New(repeat.Limit(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{Level: level})))
}

// checkVerb checks the arguments of a command that has only subcommands. showHelp is its action
// without a subcommand.
func checkVerb(c *cobra.Command, given []string) error {
	if len(given) == 0 {
		return nil
	}
	want := "see " + c.CommandPath() + " --help"
	c.SuggestionsMinimumDistance = 2
	if like := c.SuggestionsFor(given[0]); len(like) > 0 {
		want = "did you mean " + strings.Join(like, " or ") + "?"
	}
	return &vitrine.BadInput{File: c.CommandPath(), Found: fmt.Sprintf("no verb %q", given[0]), Want: want}
}

func showHelp(c *cobra.Command, _ []string) error { return c.Help() }

// args wraps cobra's argument check so that an error gives exit code 2.
func args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, given []string) error {
		if err := check(c, given); err != nil {
			return &vitrine.BadInput{File: c.CommandPath(), Found: err.Error(), Want: "usage: " + c.UseLine()}
		}
		return nil
	}
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// checkTarget returns an error if the flag's file exists and is not a regular file. durable.Replace
// would replace a device or a link, such as /dev/null or /dev/stdout, for all programs on the host.
func checkTarget(flag, path string) error {
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return &vitrine.BadInput{File: flag, Found: path + " is not a regular file", Want: "want the name of a regular file or of a new one"}
	}
	return nil // writing the file reports other errors
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"vitrine"
	"vitrine/internal/runstate"
	"vitrine/internal/thread"
	"vitrine/result"
	"vitrine/testbed/quiet"
)

func (a *app) doctorCommand() *cobra.Command {
	var asJSON bool
	var watch time.Duration
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check what this host supports, and what is missing for the rest",
		Long: "Check what this host supports, and what is missing for the rest. With --watch, also\n" +
			"watch the CPUs while nothing is measured, and say how often a trial would be disturbed\n" +
			"by other work, such as that of other virtual machines.",
		Example: "  vitrine doctor\n  vitrine doctor --watch 2m",
		Args:    args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if watch < 0 {
				return &vitrine.BadInput{File: "--watch", Found: watch.String(), Want: "want a time above 0, or 0 not to watch"}
			}
			b, err := newBackends(nil, "", a.log())
			if err != nil {
				return err
			}
			found := b.checks(c.Context())
			if watch > 0 {
				found = append(found, a.watchHost(c.Context(), watch))
			}
			if asJSON {
				return json.NewEncoder(a.stdout).Encode(found)
			}
			oneLine := strings.NewReplacer("\n", "; ")
			w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
			for _, f := range found {
				if f.OK {
					fmt.Fprintf(w, "ok\t%s\t%s\n", f.Name, oneLine.Replace(f.Detail))
				} else {
					fmt.Fprintf(w, "--\t%s\tmissing: %s\n", f.Name, oneLine.Replace(f.Missing))
				}
			}
			return w.Flush()
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	c.Flags().DurationVar(&watch, "watch", 0, "watch the CPUs for this time, for disturbances; 0: do not")
	return c
}

// watchHost checks whether trials on this host would be disturbed. Most of them may not be.
func (a *app) watchHost(ctx context.Context, length time.Duration) vitrine.Check {
	const name = "trials: quiet CPUs"
	survey, err := a.survey(ctx, length)
	if err == nil && survey.Noisy() {
		err = errors.New(survey.String() + "; run on a quieter host, or at another time")
		err = quiet.AdviseClock(err, survey.Last, result.ReadHost("/").Governor)
	}
	return vitrine.NewCheck(name, survey.String(), err)
}

// survey locks all CPUs and watches them.
func (a *app) survey(ctx context.Context, length time.Duration) (_ quiet.Survey, err error) {
	cpus, err := thread.Allowed()
	if err != nil {
		return quiet.Survey{}, err
	}
	locks, err := runstate.LockCPUs(a.cpuLocks, cpus, runstate.Owner{Run: "doctor", PID: os.Getpid(), Command: os.Args})
	if err != nil {
		return quiet.Survey{}, err
	}
	defer func() { err = errors.Join(err, locks.Close()) }()
	fmt.Fprintf(a.stderr, "watching the CPUs for %v; Ctrl-C ends this early\n", length)
	guard, err := quiet.New(ctx, cpus...)
	if err != nil {
		return quiet.Survey{}, err
	}
	return guard.Survey(ctx, length)
}

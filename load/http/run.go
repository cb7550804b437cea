package http

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"vitrine/load"
)

// Run plays the trial and prints its Report on stdout, and a line on stderr with
// delays and connection counts. If ctx ends first, Run prints no report and
// returns ctx's error. It returns a *vitrine.BadInput for wrong parameters.
func Run(ctx context.Context, t load.Trial, stdout, stderr io.Writer) (err error) {
	if err := t.Check(); err != nil {
		return err
	}
	p, err := Decode(t.Params)
	if err != nil {
		return err
	}
	e, err := newEngine(t, p)
	if err != nil {
		return fmt.Errorf("generator http: %w", err)
	}
	defer func() { err = errors.Join(err, e.close()) }()

	start, err := e.agenda.Play(ctx, e.run, func() { e.stopped.Store(true) })
	if err != nil {
		return err
	}
	report, err := e.record.Report(start)
	if err != nil {
		return fmt.Errorf("generator http: %w", err)
	}
	fmt.Fprintf(stderr, "http: calls begun at most %v late; up to %d connections; %d calls waited for one, %d were sent again on a new one, %d could not be sent\n",
		e.agenda.Behind().Round(time.Microsecond), len(e.conns), e.waited, e.resent, e.unsent)
	return report.Print(stdout)
}

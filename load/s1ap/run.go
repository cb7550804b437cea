package s1ap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"vitrine/load"
	"vitrine/reference/epc/s1"
)

// Run plays the trial and prints its Report on stdout, and a line on stderr with
// delays and the outcome of each procedure. If ctx ends first, Run prints no report
// and returns ctx's error. It returns a *vitrine.BadInput for wrong parameters.
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
		return fmt.Errorf("generator s1ap: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { e.stopped.Store(true) })
	defer stop()
	e.prepare()
	start, err := e.agenda.Play(ctx, e.run, func() { e.stopped.Store(true) })
	if err != nil {
		return errors.Join(err, e.close())
	}
	report, err := e.record.Report(start)
	if err != nil {
		return errors.Join(fmt.Errorf("generator s1ap: %w", err), e.close())
	}
	report.Error = e.refused
	outcome := e.outcome() // before close, which may change the counts
	if err := e.close(); err != nil {
		return fmt.Errorf("generator s1ap: %w", err)
	}
	fmt.Fprintf(stderr, "s1ap: over %s; calls begun at most %v late; %d eNodeBs%s\n",
		s1.Describe(p.Transport), e.agenda.Behind().Round(time.Microsecond), p.ENodeBs, outcome)
	return report.Print(stdout)
}

// outcome returns the counts of the trial and of each procedure that was played,
// including the warm-up.
func (e *engine) outcome() string {
	var b strings.Builder
	fmt.Fprintf(&b, "; %d associations lost; %d S1 Setups postponed; %d connections reset; %d calls begun again; %d stray, %d malformed messages", e.lost, e.postponed, e.resets, e.retried, e.stray, e.malformed)
	for p := range procedures {
		if c := e.counts[p]; c.begun > 0 {
			fmt.Fprintf(&b, "; %v: %d begun, %d succeeded, %d failed", p, c.begun, c.succeeded, c.failed)
		}
	}
	return b.String()
}

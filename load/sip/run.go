package sip

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"vitrine/load"
)

// Run plays the trial and prints its Report on stdout, and a line on stderr with
// delays and message problems. If ctx ends first, Run prints no report and
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
		return fmt.Errorf("generator sip: %w", err)
	}
	defer func() { err = errors.Join(err, e.close()) }()

	start, err := e.agenda.Play(ctx, e.run, func() { e.stopped.Store(true) })
	if err != nil {
		return err
	}
	report, err := e.record.Report(start)
	if err != nil {
		return fmt.Errorf("generator sip: %w", err)
	}
	lost, err := e.countDrops()
	if err != nil {
		return fmt.Errorf("generator sip: %w", err)
	}
	if lost > 0 {
		// Lost datagrams would count as timeouts of the function.
		report.Error = fmt.Sprintf("%d messages were lost in the generator's own receive buffers: give it more CPU, or raise net.core.rmem_max", lost)
	}
	fmt.Fprintf(stderr, "sip: calls begun at most %v late; %d stray, %d malformed messages; %d calls could not be sent\n",
		e.agenda.Behind().Round(time.Microsecond), e.stray, e.malformed, e.unsent)
	return report.Print(stdout)
}

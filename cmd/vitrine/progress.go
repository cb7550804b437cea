package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"vitrine/measure"
	"vitrine/report"
	"vitrine/spec"
	"vitrine/trial"
)

// progress prints the progress of a campaign for a person: one changing line on a
// terminal, plain lines in a pipe.
type progress struct {
	out        io.Writer
	columns    func() int // width of the terminal; nil: no terminal
	unit       string
	thresholds []float64     // success ratios that trials are judged by
	about      time.Duration // estimated time of the campaign, without the trials on record
	trial      time.Duration // planned time of one trial
	open       bool          // the campaign may measure fewer sizings than estimated
	width      int           // of the changing line, in characters
}

func newProgress(out io.Writer, w *spec.Workload, plan trial.Plan) *progress {
	return &progress{out: out, columns: columns(out), unit: w.Unit, thresholds: w.Thresholds, about: plan.About, trial: plan.Trial, open: plan.Open}
}

// about introduces the estimated time of a plan. An open plan may end before it has measured as many
// sizings as the estimate counts.
func about(open bool) string {
	if open {
		return "up to about"
	}
	return "about"
}

// columns returns a function that returns the width of the terminal, which the user may change. It
// returns nil if out is no terminal.
func columns(out io.Writer) func() int {
	f, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	return func() int {
		width, _, _ := term.GetSize(int(f.Fd())) // negative: not known
		return width
	}
}

// packetProgress returns an observer that prints the progress of a measurement of
// packets.
func (a *app) packetProgress() func(measure.Event) {
	p := &progress{out: a.stderr, columns: columns(a.stderr)}
	return func(e measure.Event) {
		if e.Outcome == nil {
			p.line("%d/%d  %s  %s", e.Done, e.Of, e.Doing, packetsLeft(e))
			return
		}
		o := e.Outcome
		text := fmt.Sprintf("%d/%d  %s  %s  %s  repeat %d", e.Done, e.Of, o.Substrate, o.Options, o.Subject, o.Repeat)
		switch {
		case e.Recorded:
			p.passing("%s  (on record)", text)
		case !o.Valid:
			p.line("%s  invalid: %s", text, o.Reason)
		case o.Latency.P50 > 0:
			p.passing("%s  median %.4g µs  %s", text, o.Latency.P50*1e3, packetsLeft(e))
		default:
			p.passing("%s  %s", text, packetsLeft(e))
		}
	}
}

// packetsLeft returns how long a measurement still takes. If no stream has shown the pace yet, it
// returns only the time of sending.
func packetsLeft(e measure.Event) string {
	if e.Left > 0 {
		return fmt.Sprintf("about %s left", e.Left.Round(time.Second))
	}
	return fmt.Sprintf("%s of sending left", e.Sending.Round(time.Second))
}

func (p *progress) observe(e trial.Event) {
	switch e.Kind {
	case trial.SizingChosen:
		if len(e.Sizing) == 0 {
			p.line("search ended: %s", e.Why)
			return
		}
		p.line("%s: %s", title(e), e.Why)
	case trial.TrialBegins:
		p.passing("  %s  repeat %d  %g %s  %s", e.Sizing, e.Step.Repeat, e.Step.Rate, p.unit, p.left(e.Elapsed))
	case trial.TrialDone:
		if e.Recorded && e.Outcome.Valid { // the estimate has no invalid trials
			p.about -= p.trial
		}
		text := "  " + p.outcomeLine(e)
		if p.columns == nil && !e.Recorded { // on a terminal, the next trial's line shows it
			text += "  " + p.left(e.Elapsed)
		}
		p.line("%s", text)
	case trial.RateDone:
		p.line("  %s", e.Why)
	case trial.SizingDone:
		c := e.Measured.Capacities[0]
		p.line("%s: capacity in %s: %s, bottleneck %s", title(e), p.unit, report.Known(c), cmp.Or(e.Measured.Bottleneck, "not known"))
	}
}

func title(e trial.Event) string {
	return strings.TrimSpace(e.Sizing.String() + " " + e.Choice.Options)
}

func (p *progress) outcomeLine(e trial.Event) string {
	o := e.Outcome
	text := fmt.Sprintf("#%d repeat %d  %g %s", o.Seq, o.Repeat, o.Rate, p.unit)
	switch {
	case !o.Valid:
		text += "  invalid: " + o.Reason
	case o.Succeeded == 0: // there is no latency
		text += "  success " + report.RatioText(o.SuccessRatio(), p.thresholds)
	default:
		text += fmt.Sprintf("  success %s  p99 %.3g ms", report.RatioText(o.SuccessRatio(), p.thresholds), o.Latency.P99)
	}
	if e.Recorded {
		text += "  (on record)"
	}
	return text
}

func (p *progress) left(elapsed time.Duration) string {
	if elapsed >= p.about {
		return fmt.Sprintf("%s elapsed, longer than planned", elapsed.Round(time.Second))
	}
	return fmt.Sprintf("%s elapsed, %s %s left", elapsed.Round(time.Second), about(p.open), (p.about - elapsed).Round(time.Second))
}

// passing shows the current activity until the next line. In a pipe it prints
// nothing.
func (p *progress) passing(format string, v ...any) {
	if p.columns == nil {
		return
	}
	text := fit(fmt.Sprintf(format, v...), p.columns())
	fmt.Fprintf(p.out, "\r%-*s", p.width, text)
	p.width = utf8.RuneCountInString(text)
}

// fit cuts the text so that it stays on one row, because a carriage return goes back to the start of
// the last row only. If the number of columns is not known, it is not positive.
func fit(text string, columns int) string {
	if letters := []rune(text); columns > 0 && len(letters) >= columns {
		return string(letters[:columns-1])
	}
	return text
}

func (p *progress) line(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	if p.columns != nil {
		text = fmt.Sprintf("\r%-*s", p.width, text)
		p.width = 0
	}
	fmt.Fprintln(p.out, text)
}

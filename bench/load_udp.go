package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// ports is a range of UDP or TCP ports on 127.0.0.1.
type ports struct{ first, count int }

func (p ports) String() string { return fmt.Sprintf("%d+%d", p.first, p.count) }

// A flood is the result of sending for a while.
type flood struct {
	wanted, sent, arrived float64 // messages
	punctual              float64 // messages that had arrived when the last one was sent
	took                  time.Duration
	late                  time.Duration // largest lateness of a burst, when latency is measured
	samples               int
	latency               [5]time.Duration // of the samples: percentiles 50, 90, 99 and 99.9, and the maximum
}

// behind reports whether the load tool failed to keep its schedule.
func (f flood) behind(lasting time.Duration) bool {
	return f.sent < f.wanted || f.took > lasting+lasting/100
}

// loss returns the share of messages that did not arrive.
func (f flood) loss() float64 { return 1 - f.arrived/f.sent }

// queued returns the share of messages that arrived after the last one was sent.
func (f flood) queued() float64 { return (f.arrived - f.punctual) / f.sent }

// A udpLoad is a running load.c. It sends a corpus to a port and counts the messages that arrive at
// its sinks.
type udpLoad struct{ *helper }

// drive starts the load tool and waits until it is ready.
func (s *stage) drive(ctx context.Context, target int, sources, sinks ports, corpus string) (*udpLoad, error) {
	l, err := startHelper(exec.CommandContext(ctx, s.load, fmt.Sprint(target), sources.String(), sinks.String(), corpus), s.startLoad)
	if err != nil {
		return nil, err
	}
	if line, err := l.line(); line != "ready" {
		return nil, errors.Join(fmt.Errorf("the load tool printed %q: %w", line, err), l.close())
	}
	return &udpLoad{l}, nil
}

// send sends at a rate, in messages per second.
func (l *udpLoad) send(rate float64, lasting time.Duration) (flood, error) {
	return l.command("rate", rate, lasting)
}

// sample is like send, but with random gaps, and measures latency.
func (l *udpLoad) sample(rate float64, lasting time.Duration) (flood, error) {
	return l.command("latency", rate, lasting)
}

func (l *udpLoad) command(what string, rate float64, lasting time.Duration) (flood, error) {
	if _, err := fmt.Fprintln(l.in, what, rate, lasting.Seconds()); err != nil {
		return flood{}, fmt.Errorf("the load tool: %w", err)
	}
	line, err := l.line()
	if err != nil {
		return flood{}, fmt.Errorf("the load tool ended: %w", err)
	}
	return parseFlood(line, rate*lasting.Seconds())
}

// parseFlood parses the load tool's line: messages sent, seconds, messages arrived when the last one
// was sent, messages arrived in all, and for the command latency also lateness in ns, number of samples
// and latencies in ns.
func parseFlood(line string, wanted float64) (flood, error) {
	f := flood{wanted: float64(int64(wanted))}
	var took float64
	rest := strings.NewReader(line)
	if _, err := fmt.Fscan(rest, &f.sent, &took, &f.punctual, &f.arrived); err != nil {
		return f, fmt.Errorf("the load tool printed %q: %w", line, err)
	}
	f.took = time.Duration(took * float64(time.Second))
	if len(strings.Fields(line)) <= 4 { // the command was rate, without latency
		return f, nil
	}
	if _, err := fmt.Fscan(rest, (*int64)(&f.late), &f.samples); err != nil {
		return f, fmt.Errorf("the load tool printed %q: %w", line, err)
	}
	if f.samples == 0 {
		return f, nil
	}
	for i := range f.latency {
		if _, err := fmt.Fscan(rest, (*int64)(&f.latency[i])); err != nil {
			return f, fmt.Errorf("the load tool printed %q: %w", line, err)
		}
	}
	return f, nil
}

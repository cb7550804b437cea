package main

import (
	"context"
	_ "embed"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"vitrine/monitor"
)

//go:embed forwarder/frames.c
var framesSource []byte

// s1apDirector returns the product in front of MMEs.
func s1apDirector() device {
	return directorDevice("s1ap", "{name: "+s1apType+", protocol: s1ap}", "- {type: "+s1apType+"}\n", instances)
}

// s1apType is the aggregate type of directorDevice.
const s1apType = "session"

// framesForwarder returns the cheapest possible device for S1AP frames. It reads only their length.
func (s *stage) framesForwarder(ctx context.Context) (device, error) {
	program, err := compileC(ctx, s.dir, "frames", framesSource)
	name := fmt.Sprintf("a bare forwarder in C that sends the same S1AP frames over TCP to %d instances in turn", instances.count)
	return device{name: name, command: func(ctx context.Context, _ *stage) (*exec.Cmd, error) {
		return forwarding(ctx, program, instances)
	}}, err
}

// s1apTrial is the duration of one trial.
const s1apTrial = 2 * time.Second

// directorS1AP compares how many S1AP messages the director and a bare forwarder pass per second
// of their own CPU time. Each device has one core. The load waits for all messages of a step
// before it sends the next step, so it may be slower than the forwarder. A rate by wall-clock time
// would then be the rate of the load.
func directorS1AP(ctx context.Context, s *stage, progress io.Writer) (rows []Row, err error) {
	plan, err := newS1APPlan(ctx)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(s.dir, "s1ap")
	if err := plan.write(file); err != nil {
		return nil, err
	}
	forwarder, err := s.framesForwarder(ctx)
	if err != nil {
		return nil, err
	}
	var allocated []float64 // memory allocations of the director per message
	of := func(d device, director bool) side {
		return func(ctx context.Context) (float64, error) {
			r, err := s.passS1AP(ctx, d, file, director)
			if err != nil {
				return 0, err
			}
			if director {
				allocated = append(allocated, r.allocations/r.messages)
			}
			fmt.Fprintf(progress, "  %s: %.0f messages a second by the clock\n", d.name, r.messages/r.took)
			return r.messages / r.cpu, nil
		}
	}
	pairs, err := interleave(ctx, minRounds, of(s1apDirector(), true), of(forwarder, false), progress)
	if err != nil {
		return nil, err
	}
	row, err := pairs.row("director/s1ap", "messages/CPU-s", fmt.Sprintf("%s; the director allocates %.2g times a message", forwarder.name, median(allocated)), "")
	return []Row{row}, err
}

// An s1apPassed is the result of one trial of a device.
type s1apPassed struct {
	messages    float64
	took, cpu   float64 // seconds; cpu is the device's
	allocations float64 // memory allocations of the director; 0 for another device
}

// passS1AP plays the plan through a device. In a warm-up, the instances compare what they receive
// with the plan. director says whether the device is a director, which needs an S1 Setup of each
// eNodeB.
func (s *stage) passS1AP(ctx context.Context, d device, plan string, director bool) (passed s1apPassed, err error) {
	var running *exec.Cmd
	start := d.command
	d.command = func(ctx context.Context, s *stage) (cmd *exec.Cmd, err error) {
		cmd, err = start(ctx, s)
		running = cmd
		return cmd, err
	}
	err = s.with(ctx, d, func() error {
		load, err := startHelper(exec.CommandContext(ctx, self(), playS1APCommand, plan, fmt.Sprint(director), s1apTrial.String()), s.startLoad)
		if err != nil {
			return err
		}
		return errors.Join(passed.measure(running.Process.Pid, load), load.close())
	})
	return passed, err
}

// measure waits until the load is warm, starts the trial and measures the CPU time of the device's
// process until the trial ends.
func (p *s1apPassed) measure(pid int, load *helper) error {
	if line, err := load.line(); err != nil || line != "ready" {
		return fmt.Errorf("the S1AP load printed %q: %w", line, err)
	}
	before, err := monitor.ProcessCPU(pid)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(load.in, "go"); err != nil {
		return err
	}
	line, err := load.line()
	if err != nil {
		return fmt.Errorf("the S1AP load ended: %w", err)
	}
	after, err := monitor.ProcessCPU(pid)
	if err != nil {
		return err
	}
	p.cpu = (after - before).Seconds()
	if _, err := fmt.Sscan(line, &p.messages, &p.took, &p.allocations); err != nil || p.messages == 0 || p.cpu <= 0 {
		return fmt.Errorf("the S1AP load printed %q, the device used %g s of CPU time: %w", line, p.cpu, err)
	}
	return nil
}

// write writes the plan to a file, for readS1APPlan.
func (p s1apPlan) write(file string) (err error) {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return gob.NewEncoder(f).Encode(p)
}

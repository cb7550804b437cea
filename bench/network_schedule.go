package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"

	"vitrine/measure/packet"
)

//go:embed schedule/schedule.c
var scheduleSource []byte

const (
	scheduleRounds  = 31
	scheduleRate    = 64_000 // packets a second
	schedulePackets = 32_000
)

// networkScheduleError compares the lateness of packets: the 99th percentile of the delay after
// their scheduled times. One side is our sender. The other is a bare loop in C that makes the same
// system calls from the same core.
func networkScheduleError(ctx context.Context, progress io.Writer) (rows []Row, err error) {
	c, err := newCable(ctx)
	defer func() { err = errors.Join(err, c.close()) }()
	if err != nil {
		return nil, err
	}
	if err := c.dropFrames(); err != nil {
		return nil, err
	}
	program, err := compileC(ctx, c.dir, "schedule", scheduleSource)
	if err != nil {
		return nil, err
	}
	sender, err := packet.OpenSender(packet.SenderConfig{NetNS: c.near.netns, Interface: "eth0", CPU: c.core})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, sender.Close()) }()
	ours := func(ctx context.Context) (float64, error) {
		sent, err := sender.Send(ctx, c.stream(schedulePackets, scheduleRate))
		return float64(sent.Schedule.P99), err
	}
	theirs := func(ctx context.Context) (float64, error) { return c.bareSchedule(ctx, program) }
	return compareSides(ctx, scheduleRounds, "network/schedule-error", "ns, 99th percentile",
		fmt.Sprintf("a bare loop in C with the same calls, both at %d packets/s", scheduleRate), "<= 2", ours, theirs, progress)
}

// bareSchedule returns the 99th percentile of the C loop's lateness in ns.
func (c *cable) bareSchedule(ctx context.Context, program string) (float64, error) {
	frame := make([]byte, networkSize)
	if err := packet.Build(frame, c.ends()); err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, program, "eth0", fmt.Sprint(schedulePackets), fmt.Sprint(scheduleRate))
	cmd.Stdin = bytes.NewReader(frame)
	out, err := finish(cmd, c.start)
	if err != nil {
		return 0, err
	}
	ns, err := strconv.ParseFloat(strings.TrimSpace(out), 64)
	if err != nil {
		return 0, fmt.Errorf("the loop in C printed %q: %w", out, err)
	}
	return ns, nil
}

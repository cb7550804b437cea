package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"vitrine/director/client"
)

// A handedOver names the process that serves after a hand-over.
type handedOver struct {
	State string `json:"state"`
	PID   int    `json:"pid"`
}

func (k *directorControl) restart() *cobra.Command {
	return requestCommand(k, "restart", "Hand over to a new process; no packet is refused", cobra.NoArgs,
		func(ctx context.Context, c *client.Client, _ []string) (handedOver, error) {
			pid, err := handOver(ctx, c)
			return handedOver{"handed over", pid}, err
		}, func(w io.Writer, got handedOver) error {
			_, err := fmt.Fprintf(w, "%s to pid %d\n", got.State, got.PID)
			return err
		})
}

// handOverTime limits a hand-over. A new process has 30 s to get ready, and some more to take over.
const handOverTime = 40 * time.Second

// handOver makes a director hand over to a new process, and returns the PID of that process when it serves.
func handOver(ctx context.Context, c *client.Client) (pid int, err error) {
	before, err := c.Status(ctx)
	if err != nil {
		return 0, err
	}
	if err := c.Restart(ctx); err != nil {
		return 0, err
	}
	late := errors.New("no new process answers after " + handOverTime.String() + ": the director's log says why")
	ctx, cancel := context.WithTimeoutCause(ctx, handOverTime, late)
	defer cancel()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	var last error // such as that of a new process with another address or token
	for {
		select {
		case <-ctx.Done():
			return 0, errors.Join(context.Cause(ctx), last)
		case <-again.C:
		}
		now, err := c.Status(ctx)
		if ctx.Err() == nil {
			last = err
		}
		switch {
		case err != nil: // the old process ends
		case now.PID != before.PID:
			return now.PID, nil
		case now.Restart != nil && (before.Restart == nil || !now.Restart.At.Equal(before.Restart.At)):
			return 0, fmt.Errorf("the hand-over failed, and process %d continues: %s", now.PID, now.Restart.Error)
		}
	}
}

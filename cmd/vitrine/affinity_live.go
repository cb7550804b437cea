package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"vitrine"
	"vitrine/affinity"
	"vitrine/affinity/capture"
	"vitrine/affinity/correlate"
	"vitrine/affinity/message"
	"vitrine/affinity/pseudonym"
)

// leastLive is the minimum memory for a live capture, in MiB. The kernel ring gets a sixteenth
// of it, and needs 256 KiB.
const leastLive = 8

// liveFlags are the flags of affinity for live captures.
type liveFlags struct {
	interfaces  []string
	duration    time.Duration
	promiscuous bool
	write       string
}

func (f *liveFlags) add(flags *pflag.FlagSet) {
	flags.StringSliceVarP(&f.interfaces, "interface", "i", nil, "read the frames at these network interfaces, until Ctrl-C; any: all interfaces that are up")
	flags.DurationVar(&f.duration, "duration", 0, "time to read interfaces (default until Ctrl-C)")
	flags.BoolVar(&f.promiscuous, "promiscuous", false, "also read frames for other hosts, as on a mirror port")
	flags.StringVarP(&f.write, "write", "w", "", "also write the frames of interfaces to this pcapng file")
}

// check checks the flags. captures are the additional files that the user named.
func (f *liveFlags) check(captures []string) error {
	if !f.live() {
		for flag, given := range map[string]bool{"--duration": f.duration != 0, "--promiscuous": f.promiscuous, "--write": f.write != ""} {
			if given {
				return &vitrine.BadInput{File: flag, Found: "no interface is named", Want: "name one with --interface"}
			}
		}
		return nil
	}
	switch {
	case len(captures) > 0:
		return &vitrine.BadInput{File: captures[0], Found: "named together with an interface", Want: "analyse captures and interfaces separately: --write writes a capture of an interface"}
	case f.duration < 0:
		return &vitrine.BadInput{File: "--duration", Found: f.duration.String(), Want: "want more than 0s"}
	}
	return nil
}

func (f *liveFlags) live() bool { return len(f.interfaces) > 0 }

// options returns the options of the capture.
func (f *liveFlags) options() capture.LiveOptions {
	o := capture.LiveOptions{Interfaces: f.interfaces, Promiscuous: f.promiscuous}
	if f.write != "" {
		o.Keep = &capture.Recorder{Name: f.write}
	}
	return o
}

// capturing returns two contexts of a capture and a function to call when it has started. stop ends the
// capture, at a signal or after the duration. rest does not end then, so that the packets captured until
// then can be read. heard prints that the capture has started, and then the duration begins: opening
// interfaces takes time.
func (a *app) capturing(ctx context.Context, f liveFlags) (rest, stop context.Context, heard, cancel func()) {
	stop, cancel = context.WithCancel(ctx)
	return context.WithoutCancel(ctx), stop, func() {
		until := "until Ctrl-C"
		if f.duration > 0 {
			until = fmt.Sprintf("for %v, or until Ctrl-C", f.duration)
		}
		fmt.Fprintf(a.stderr, "capturing at %s %s\n", strings.Join(f.interfaces, ", "), until)
		if f.duration > 0 {
			time.AfterFunc(f.duration, cancel)
		}
	}, cancel
}

// readLive finds the transactions in a live capture.
func (a *app) readLive(ctx context.Context, f liveFlags, read message.Options, divide correlate.Options, key *pseudonym.Key) (*affinity.Captured, error) {
	rest, stop, heard, cancel := a.capturing(ctx, f)
	defer cancel()
	return affinity.ReadLive(rest, stop, f.options(), heard, read, divide, key)
}

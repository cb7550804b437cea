package trial

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"vitrine"
	"vitrine/fabric"
	"vitrine/spec"
	"vitrine/substrate"
)

const (
	stopGrace  = 2 * time.Second
	scratchDir = "scratch"
	tailBytes  = 2048 // of a log, in errors
)

// An instance is one running copy of a component.
type instance struct {
	name      string // "sprout-1"
	index     int    // 1, 2, ...
	component *spec.Component
	dir       string // on the host: log and scratch
	place     substrate.Instance
	endpoint  fabric.Endpoint
	vars      map[string]string // what ${VAR} stands for in its command
	env       []string
	process   substrate.Process
	logBegins int64 // where the log of what runs begins: the file goes on from start to start
}

// create makes the instance's place and wires it.
func (in *instance) create(ctx context.Context, sub substrate.Substrate, fab fabric.Fabric, sp substrate.Spec) error {
	if err := in.createPlace(ctx, sub, sp); err != nil {
		return err
	}
	var err error
	if in.endpoint, err = fab.Attach(ctx, fabric.Port{Instance: in.name, NetNS: in.place.NetNS()}); err != nil {
		return fmt.Errorf("attach %s: %w", in.name, err)
	}
	return nil
}

// createPlace makes the place alone.
func (in *instance) createPlace(ctx context.Context, sub substrate.Substrate, sp substrate.Spec) error {
	if err := os.MkdirAll(filepath.Join(sp.Dir, scratchDir), 0o755); err != nil {
		return err
	}
	place, err := sub.Create(ctx, sp)
	if err != nil {
		return fmt.Errorf("create %s: %w", in.name, err)
	}
	in.place = place
	return nil
}

// start starts the command in the place.
func (in *instance) start(ctx context.Context, command vitrine.Command) error {
	in.logBegins = 0
	if info, err := os.Stat(in.log()); err == nil {
		in.logBegins = info.Size()
	}
	process, err := in.place.Start(ctx, command)
	if err != nil {
		return fmt.Errorf("start %s: %w", in.name, err)
	}
	in.process = process
	return nil
}

func (in *instance) log() string { return filepath.Join(in.dir, "log") }

// remove takes the instance down; what does not exist is skipped.
func (in *instance) remove(ctx context.Context, fab fabric.Fabric) error {
	if in.place == nil {
		return nil
	}
	err := errors.Join(
		in.place.Stop(ctx, stopGrace),
		fab.Detach(ctx, in.name),
		in.place.Remove(ctx),
		os.RemoveAll(filepath.Join(in.dir, scratchDir)),
	)
	if err != nil {
		return fmt.Errorf("remove %s: %w", in.name, err)
	}
	in.place = nil
	return nil
}

// ended says how the instance ended, with the end of its log.
func (in *instance) ended() error {
	how := "exit status 0"
	if err := in.process.Err(); err != nil {
		how = err.Error()
	}
	return fmt.Errorf("%s ended (%s); its log ends:\n%s", in.name, how, in.logTail())
}

func (in *instance) logTail() string {
	f, err := os.Open(in.log())
	if err != nil {
		return "(" + err.Error() + ")"
	}
	defer f.Close()
	if end, err := f.Seek(0, io.SeekEnd); err == nil {
		_, _ = f.Seek(max(in.logBegins, end-tailBytes), io.SeekStart)
	}
	tail, _ := io.ReadAll(io.LimitReader(f, tailBytes))
	return strings.TrimSpace(string(tail))
}

// at is the address of one of the component's ports on this instance.
func (in *instance) at(c *spec.Component, port string) netip.AddrPort {
	return netip.AddrPortFrom(in.endpoint.Addr, uint16(c.Ports[port]))
}

package director

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/cloudflare/tableflip"
)

// errHandedOver ends a director whose sockets another process serves now.
var errHandedOver = errors.New("handed over to a new process")

// A Handover is how a director is replaced by a new process with no packet
// refused: the new one inherits the sockets and says when it is ready; then the
// old one stops to read, hands its workers' memories over, and ends. What comes
// in between waits in the sockets.
//
// A program has one. A nil Handover hands nothing over.
type Handover struct {
	upgrader *tableflip.Upgrader
	memory   *os.File // the new process reads from here
	to       *os.File // the old one writes here
}

// NewHandover prepares for one, and takes over if this process was started by
// one. pidFile, if it is not empty, has the number of the process that serves.
func NewHandover(pidFile string) (*Handover, error) {
	u, err := tableflip.New(tableflip.Options{PIDFile: pidFile, UpgradeTimeout: 30 * time.Second})
	if err != nil {
		return nil, fmt.Errorf("prepare to hand over: %w", err)
	}
	return &Handover{upgrader: u}, nil
}

const (
	socketName = "socket-"
	memoryName = "memory"
	// mostSockets is how many names are looked for.
	mostSockets = 1 << 16
	// takeOverTime bounds how long the new process waits for the old one's
	// memories, while messages wait in the sockets.
	takeOverTime = 5 * time.Second
)

// inherited are the sockets of the process before, in its order.
func (h *Handover) inherited() (files []*os.File, err error) {
	if h == nil {
		return nil, nil
	}
	if h.memory, err = h.upgrader.File(memoryName); err != nil {
		return nil, fmt.Errorf("take over: %w", err)
	}
	for i := range mostSockets {
		f, err := h.upgrader.File(socketName + strconv.Itoa(i))
		if err != nil {
			closeAll(files)
			return nil, fmt.Errorf("take over: %w", err)
		}
		if f == nil {
			break
		}
		files = append(files, f)
	}
	return files, nil
}

// listen opens the control listener, or takes it over.
func (h *Handover) listen(ctx context.Context, address string) (net.Listener, error) {
	if h == nil {
		var c net.ListenConfig
		return c.Listen(ctx, "tcp", address)
	}
	return h.upgrader.Listen("tcp", address)
}

// keep notes the sockets for the next process.
func (h *Handover) keep(d *Director) error {
	if h == nil {
		return nil
	}
	files, err := d.files()
	if err != nil {
		return err
	}
	defer closeAll(files)
	for i, f := range files {
		if err := h.upgrader.AddFile(socketName+strconv.Itoa(i), f); err != nil {
			return fmt.Errorf("prepare to hand over: %w", err)
		}
	}
	return nil
}

// ready tells the process before that this one serves, and takes its workers'
// memories over.
func (h *Handover) ready(d *Director) error {
	if h == nil {
		return nil
	}
	if err := h.upgrader.Ready(); err != nil {
		return fmt.Errorf("take over: %w", err)
	}
	if h.memory == nil {
		return nil
	}
	defer func() { h.memory = nil }()
	defer h.memory.Close() // only read from
	if err := h.memory.SetReadDeadline(time.Now().Add(takeOverTime)); err != nil {
		d.log.Warn("the old process's memory cannot be waited for within bounds", "error", err)
	}
	if keys, err := d.takeOver(h.memory); err != nil {
		d.log.Warn("not everything was taken over; keys that are not remembered go by the table before, as after any restart", "keys", keys, "error", err)
	} else {
		d.log.Info("took over", "keys", keys)
	}
	return nil
}

// takeOver reads what handOver wrote.
func (d *Director) takeOver(from io.Reader) (keys int, err error) {
	in := bufio.NewReaderSize(from, 1<<16)
	if err := d.epochs.TakeOver(in); err != nil {
		return 0, err
	}
	for _, s := range d.memories() {
		n, err := s.TakeOver(in)
		keys += n
		if err != nil {
			return keys, err
		}
	}
	if d.gtpc != nil {
		n, err := d.gtpc.director.TakeOver(in)
		keys += n
		if err != nil {
			return keys, err
		}
	}
	return keys, d.meter.TakeOver(in)
}

// handOver writes what the workers remember; they have stopped.
func (d *Director) handOver(to io.Writer) error {
	out := bufio.NewWriterSize(to, 1<<16)
	if err := d.epochs.Carry(out); err != nil {
		return err
	}
	for _, s := range d.memories() {
		if err := s.Carry(d.now(), out); err != nil {
			return err
		}
	}
	if d.gtpc != nil {
		if err := d.gtpc.director.Carry(d.now(), out); err != nil {
			return err
		}
	}
	if err := d.meter.Carry(out); err != nil {
		return err
	}
	return out.Flush()
}

// listenToRestart starts a new process when that is asked for, and ends this one
// when the new one is ready.
func (d *Director) listenToRestart(ctx context.Context, stop context.CancelCauseFunc) error {
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-d.options.Restart:
		case <-d.restarts:
		}
		if err := d.restart(ctx); err != nil {
			d.log.Error("no hand-over; this process goes on", "error", err)
			continue
		}
		stop(errHandedOver)
	}
}

// restart starts the new process. While that starts, no epoch changes, for both
// must steer alike.
func (d *Director) restart(ctx context.Context) error {
	h := d.options.Handover
	if h == nil {
		return errors.New("this director was started without a way to hand over")
	}
	// The process before may not have ended yet.
	if err := h.upgrader.WaitForParent(ctx); err != nil {
		return fmt.Errorf("hand over: %w", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("hand over: %w", err)
	}
	defer r.Close() // a duplicate is passed on
	if err := h.upgrader.AddFile(memoryName, r); err != nil {
		return errors.Join(fmt.Errorf("hand over: %w", err), w.Close())
	}
	if err := d.freeze(ctx); err != nil {
		return errors.Join(fmt.Errorf("hand over: %w", err), w.Close())
	}
	if err := h.upgrader.Upgrade(); err != nil {
		d.thaw()
		return errors.Join(fmt.Errorf("hand over: %w", err), w.Close())
	}
	h.to = w
	return nil
}

// freeze puts in force what was told, for the new process knows what is in the
// state file, and has nothing told or published from then on.
func (d *Director) freeze(ctx context.Context) error {
	for {
		wait, err := d.publish()
		if err != nil {
			return err
		}
		d.publishing.Lock()
		d.frozen = wait == 0 && d.roster.freeze(d.published)
		frozen := d.frozen
		d.publishing.Unlock()
		if frozen {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(wait):
		}
	}
}

func (d *Director) thaw() {
	d.publishing.Lock()
	defer d.publishing.Unlock()
	d.frozen = false
	d.roster.thaw()
}

// finish hands the memories over, once the workers have stopped.
func (h *Handover) finish(d *Director) error {
	if h == nil {
		return nil
	}
	h.upgrader.Stop()
	if h.to == nil {
		return nil
	}
	return errors.Join(d.handOver(h.to), h.to.Close())
}

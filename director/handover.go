package director

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
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
	memoryName = "memory"
	// takeOverTime bounds how long the new process waits for the old one's
	// memories, while messages wait in the sockets.
	takeOverTime = 5 * time.Second
)

// inherited are the sockets of the process before for the listeners that are
// still wanted. The others are closed when this process is ready.
func (h *Handover) inherited(c *Config) (files []*os.File, err error) {
	if h == nil {
		return nil, nil
	}
	if h.memory, err = h.upgrader.File(memoryName); err != nil {
		return nil, fmt.Errorf("take over: %w", err)
	}
	for _, text := range slices.Concat(c.Listen.SIP, c.Listen.GTPC) {
		more, err := h.sockets(text)
		files = append(files, more...)
		if err != nil {
			closeAll(files)
			return nil, fmt.Errorf("take over: %w", err)
		}
	}
	return files, nil
}

// sockets are those of one listener.
func (h *Handover) sockets(listener string) (files []*os.File, err error) {
	l, err := ParseListener(listener)
	if err != nil {
		return nil, err
	}
	for i := 0; ; i++ {
		f, err := h.upgrader.File(socketName(l, i))
		if f == nil || err != nil {
			return files, err
		}
		files = append(files, f)
	}
}

// socketName is the name under which a listener's socket is handed over.
func socketName(l Listener, i int) string {
	return fmt.Sprintf("%s %d", l, i)
}

// listenerOf is what a socket was opened for.
func listenerOf(f *os.File) (Listener, error) {
	if l, err := net.FileListener(f); err == nil { // duplicates; fails for what is no listener
		defer l.Close()
		return ParseListener(TCP + "://" + l.Addr().String())
	}
	c, err := net.FilePacketConn(f)
	if err != nil {
		return Listener{}, err
	}
	defer c.Close() // a duplicate
	return ParseListener(UDP + "://" + c.LocalAddr().String())
}

// listen opens the control listener, or takes it over.
func (h *Handover) listen(ctx context.Context, address string) (net.Listener, error) {
	if h == nil {
		var c net.ListenConfig
		return c.Listen(ctx, "tcp", address)
	}
	return h.upgrader.Listen("tcp", address)
}

// listenLocal opens the control interface's unix socket, or takes it over.
func (h *Handover) listenLocal(path string, open func(network, path string) (net.Listener, error)) (net.Listener, error) {
	if h == nil {
		return open("unix", path)
	}
	return h.upgrader.ListenWithCallback("unix", path, open)
}

// isDone says whether a new process has the sockets.
func (h *Handover) isDone() bool { return h != nil && h.to != nil }

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
	count := map[Listener]int{}
	for _, f := range files {
		l, err := listenerOf(f)
		if err == nil {
			err = h.upgrader.AddFile(socketName(l, count[l]), f)
		}
		if err != nil {
			return fmt.Errorf("prepare to hand over: %w", err)
		}
		count[l]++
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
// state file, and has nothing told or published from then on. A reload comes to
// its end first.
func (d *Director) freeze(ctx context.Context) error {
	d.reloads.one.Lock()
	defer d.reloads.one.Unlock()
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
	if !h.isDone() {
		d.removeSocket()
	}
	if h == nil {
		return nil
	}
	h.upgrader.Stop()
	if h.to == nil {
		return nil
	}
	// The new process may have given up waiting.
	err := h.to.SetWriteDeadline(time.Now().Add(takeOverTime))
	err = errors.Join(err, d.handOver(h.to), h.to.Close())
	if err != nil {
		d.log.Error("not everything was handed over", "error", err)
	}
	return err
}

package director

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/cloudflare/tableflip"

	"vitrine/internal/sctp"
)

// errHandedOver ends a director whose sockets a new process serves.
var errHandedOver = errors.New("handed over to a new process")

// A Handover replaces a director by a new process without refusing a packet. The new
// process inherits the sockets and reports when it is ready. Then the old process stops
// reading, hands over its workers' memories, and ends. Meanwhile messages wait in the
// sockets.
//
// A program has one Handover. A nil Handover hands nothing over.
type Handover struct {
	upgrader *tableflip.Upgrader
	memory   *os.File // the new process reads from it
	to       *os.File // the old process writes to it
}

// NewHandover prepares a hand-over, and takes over if this process was started by one. If
// pidFile is not empty, the file has the number of the serving process.
func NewHandover(pidFile string) (*Handover, error) {
	u, err := tableflip.New(tableflip.Options{PIDFile: pidFile, UpgradeTimeout: 30 * time.Second})
	if err != nil {
		return nil, fmt.Errorf("prepare to hand over: %w", err)
	}
	return &Handover{upgrader: u}, nil
}

const (
	memoryName = "memory"
	// takeOverTime limits how long the new process waits for the old one's memories.
	// Messages wait in the sockets meanwhile.
	takeOverTime = 5 * time.Second
)

// inherited returns the previous process's sockets for the listeners that are still
// configured. The others are closed when this process is ready.
func (h *Handover) inherited(c *Config) (files []*os.File, err error) {
	if h == nil {
		return nil, nil
	}
	if h.memory, err = h.upgrader.File(memoryName); err != nil {
		return nil, fmt.Errorf("take over: %w", err)
	}
	for _, text := range slices.Concat(c.Listen.SIP, c.Listen.GTPC, c.Listen.S1AP) {
		more, err := h.sockets(text)
		files = append(files, more...)
		if err != nil {
			closeAll(files)
			return nil, fmt.Errorf("take over: %w", err)
		}
	}
	return files, nil
}

// sockets returns the sockets of one listener.
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

// socketName returns the name under which a listener's socket is handed over.
func socketName(l Listener, i int) string {
	return fmt.Sprintf("%s %d", l, i)
}

// listenerOf returns the listener that a socket was opened for.
func listenerOf(f *os.File) (Listener, error) {
	if l, err := net.FileListener(f); err == nil { // duplicates; fails if f is not a listener
		defer l.Close()
		network := TCP
		if sctp.Is(f) {
			network = SCTP
		}
		return ParseListener(network + "://" + l.Addr().String())
	}
	c, err := net.FilePacketConn(f)
	if err != nil {
		return Listener{}, err
	}
	defer c.Close() // a duplicate
	return ParseListener(UDP + "://" + c.LocalAddr().String())
}

// listen opens or takes over the control listener.
func (h *Handover) listen(ctx context.Context, address string) (net.Listener, error) {
	if h == nil {
		var c net.ListenConfig
		return c.Listen(ctx, "tcp", address)
	}
	return h.upgrader.Listen("tcp", address)
}

// listenLocal opens or takes over the control interface's unix socket.
func (h *Handover) listenLocal(path string, open func(network, path string) (net.Listener, error)) (net.Listener, error) {
	if h == nil {
		return open("unix", path)
	}
	return h.upgrader.ListenWithCallback("unix", path, open)
}

// isDone reports whether a new process has the sockets.
func (h *Handover) isDone() bool { return h != nil && h.to != nil }

// registerSockets registers the sockets for the next process.
func (h *Handover) registerSockets(d *Director) error {
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

// ready tells the previous process that this one serves, and takes over its workers'
// memories.
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
		d.log.Warn("cannot set a deadline for the old process's memory", "error", err)
	}
	if keys, err := d.takeOver(h.memory); err != nil {
		d.log.Warn("could not take over everything; unknown keys go by the previous table, as after any restart", "keys", keys, "error", err)
	} else {
		d.publishing.Lock()
		d.blind = 0
		d.publishing.Unlock()
		d.log.Info("took over", "keys", keys)
	}
	return nil
}

// failures holds the hand-overs that failed.
type failures struct {
	mu   sync.Mutex
	n    uint64
	at   time.Time // of the last
	last error
}

func (f *failures) add(at time.Time, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n, f.at, f.last = f.n+1, at, err
}

// read returns the number of failures, and the last one; nil: none.
func (f *failures) read() (n uint64, at time.Time, last error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n, f.at, f.last
}

// listenToRestart starts a new process on request, and ends this one when the new one is
// ready.
func (d *Director) listenToRestart(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-d.options.Restart:
		case <-d.restarts:
		}
		if err := d.restart(ctx); err != nil {
			d.handovers.add(d.options.Clock.Wall(), err)
			d.log.Error("hand-over failed; this process continues", "error", err)
			continue
		}
		return errHandedOver // another request would fail, and then this process would write the state file again
	}
}

// refuseRestart returns why no new process can take over, or nil if one can.
func (d *Director) refuseRestart() error {
	switch by := d.options.Supervisor; {
	case by != "":
		return fmt.Errorf("%s runs this director as a service, and would end a new process too; end process %d, and %s starts the director again", by, os.Getpid(), by)
	case d.options.Handover == nil:
		return errors.New("this director was started without support for hand-over")
	}
	return nil
}

// restart starts the new process. No epoch may change while the new process starts, because
// both processes must steer alike.
func (d *Director) restart(ctx context.Context) error {
	if err := d.refuseRestart(); err != nil {
		return err
	}
	h := d.options.Handover
	// The previous process may not have ended yet.
	if err := h.upgrader.WaitForParent(ctx); err != nil {
		return fmt.Errorf("hand over: %w", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("hand over: %w", err)
	}
	defer r.Close() // the new process gets a duplicate
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

// freeze applies pending changes, because the new process reads the state file, and then
// rejects further changes and publications. It first waits for a reload to end, and up to 5 s for a late
// write. If the file lacks a change and cannot be written, freeze returns an error: the new process would
// lose the change.
func (d *Director) freeze(ctx context.Context) error {
	d.reloads.serial.Lock()
	defer d.reloads.serial.Unlock()
	late := time.Now().Add(5 * time.Second)
	for {
		wait, err := d.publish()
		if err != nil {
			return err
		}
		d.publishing.Lock()
		d.keepTerms(d.state.Dialogs)
		unsaved := d.unsaved
		d.frozen = unsaved == nil && wait == 0 && d.roster.freeze(d.published)
		frozen := d.frozen
		d.publishing.Unlock()
		if frozen || unsaved != nil && (!errors.Is(unsaved, errLate) || time.Now().After(late)) {
			return unsaved
		}
		if unsaved != nil {
			wait = max(wait, 100*time.Millisecond)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(wait):
		}
	}
}

// thaw accepts changes again after a failed hand-over. It writes the state file, because a new process
// that was not ready in time may have replaced it.
func (d *Director) thaw() {
	d.publishing.Lock()
	defer d.publishing.Unlock()
	d.frozen = false
	d.roster.thaw()
	d.save()
}

// finish hands over the memories after the workers have stopped. It ends a restart that is not
// complete yet, and waits until the channel restarts is closed.
func (h *Handover) finish(d *Director, restarts <-chan struct{}) error {
	if h != nil {
		h.upgrader.Stop()
	}
	<-restarts
	if !h.isDone() {
		d.removeSocket()
		return nil
	}
	// The new process may no longer be waiting.
	err := h.to.SetWriteDeadline(time.Now().Add(takeOverTime))
	err = errors.Join(err, d.handOver(h.to), h.to.Close())
	if err != nil {
		d.log.Error("could not hand over everything", "error", err)
	}
	return err
}

package datagram

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"vitrine/internal/mmsg"
)

// A Config configures a Group.
type Config struct {
	// Addresses to listen on; port 0: the kernel chooses one port for all workers.
	Addresses []netip.AddrPort
	// Workers is the number of goroutines that read, at least 1. One per core is right.
	Workers int
	// Inherited are descriptors from the previous process. Listen duplicates the UDP
	// sockets that are bound to one of Addresses, and uses them and the datagrams that wait
	// in them instead of new sockets. The caller closes the files.
	Inherited []*os.File
	// Now is a monotonic clock, read once for each batch.
	Now func() time.Duration
}

// A Group owns the sockets of some addresses and the workers that serve them.
type Group struct {
	addresses []netip.AddrPort
	now       func() time.Duration
	workers   []*worker
	wake      int // an eventfd; readable means stop
	stopped   atomic.Bool
	refused   refusal

	mu      sync.Mutex // guards closing, and senders
	closed  bool
	dropped uint64 // by the kernel, at sockets that are closed
	senders []*counts
}

// Listen opens or takes over the sockets. Datagrams wait in the sockets until Run. The
// caller closes the Group.
func Listen(config Config) (_ *Group, err error) {
	if len(config.Addresses) == 0 || config.Workers < 1 || config.Now == nil {
		return nil, errors.New("datagram: a Config needs addresses, a worker and a clock")
	}
	g := &Group{addresses: append([]netip.AddrPort(nil), config.Addresses...), now: config.Now, wake: -1}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.Close())
		}
	}()
	for range config.Workers {
		g.workers = append(g.workers, new(worker))
	}
	if err := g.adopt(config.Inherited); err != nil {
		return nil, err
	}
	if err := g.open(); err != nil {
		return nil, err
	}
	if g.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		g.wake = -1
		return nil, os.NewSyscallError("eventfd", err)
	}
	for _, w := range g.workers {
		w.prepare(len(g.addresses), g.wake, &g.refused)
	}
	return g, nil
}

// adopt distributes all inherited sockets to the workers, because the kernel still puts
// datagrams into each of them.
func (g *Group) adopt(files []*os.File) error {
	given := make([]int, len(g.addresses))
	for _, file := range files {
		fd, local, err := adopt(file)
		if err != nil {
			return err
		}
		if fd < 0 {
			continue
		}
		listener := g.listener(local)
		if listener < 0 {
			if err := unix.Close(fd); err != nil {
				return fmt.Errorf("close inherited socket of %v: %w", local, err)
			}
			continue
		}
		g.addresses[listener] = local
		w := g.workers[given[listener]%len(g.workers)]
		w.sockets = append(w.sockets, socket{fd: fd, listener: listener, local: local})
		given[listener]++
	}
	return nil
}

// listener returns the index of the address in g.addresses; -1: none. Port 0 there
// matches any port.
func (g *Group) listener(local netip.AddrPort) int {
	for i, a := range g.addresses {
		if a == local || a.Port() == 0 && a.Addr() == local.Addr() {
			return i
		}
	}
	return -1
}

// open opens a socket for each address and worker that inherited none.
func (g *Group) open() error {
	for listener := range g.addresses {
		for _, w := range g.workers {
			if w.has(listener) {
				continue
			}
			fd, err := open(g.addresses[listener])
			if err != nil {
				return err
			}
			w.sockets = append(w.sockets, socket{fd: fd, listener: listener})
			s := &w.sockets[len(w.sockets)-1]
			if s.local, err = mmsg.Local(fd); err != nil {
				return fmt.Errorf("read the address of UDP socket %v: %w", g.addresses[listener], err)
			}
			g.addresses[listener] = s.local
		}
	}
	return nil
}

func (w *worker) has(listener int) bool {
	for i := range w.sockets {
		if w.sockets[i].listener == listener {
			return true
		}
	}
	return false
}

// prepare makes a worker's buffers, after the worker has its sockets.
func (w *worker) prepare(listeners, wake int, last *refusal) {
	w.inbox = newInbox()
	w.out = newSender(listeners, &w.count, last)
	for _, s := range w.sockets {
		if w.out.queues[s.listener] == nil {
			w.out.queues[s.listener] = &queue{fd: s.fd}
		}
		w.fds = append(w.fds, unix.PollFd{Fd: int32(s.fd), Events: unix.POLLIN})
	}
	w.fds = append(w.fds, unix.PollFd{Fd: int32(wake), Events: unix.POLLIN})
}

// Addresses returns the addresses that the Group listens on, in the order of
// Config.Addresses, with the ports that the kernel chose.
func (g *Group) Addresses() []netip.AddrPort { return append([]netip.AddrPort(nil), g.addresses...) }

// Run serves with one handler per worker until ctx is done; a Group is run once. Run
// handles and sends everything that it has read. Datagrams that still wait in the sockets
// stay there for other holders of the sockets.
func (g *Group) Run(ctx context.Context, handler func(worker int) Handler) error {
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(woken)
		g.stopped.Store(true)
		_, _ = unix.Write(g.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // fails only if it is readable already
	})
	defer func() {
		if !stop() {
			<-woken // after Close, another file may have the number of g.wake
		}
	}()
	var workers sync.WaitGroup
	for i, w := range g.workers {
		h := handler(i)
		workers.Go(func() { w.run(g.now, h, g.stopped.Load) })
	}
	workers.Wait()
	return context.Cause(ctx)
}

// NewSender returns a Sender for a goroutine that is not a worker. It sends through the
// first worker's sockets, and is valid until the Group is closed.
func (g *Group) NewSender() *Sender {
	count := new(counts)
	g.mu.Lock()
	g.senders = append(g.senders, count)
	g.mu.Unlock()
	s := newSender(len(g.addresses), count, &g.refused)
	for i, q := range g.workers[0].out.queues {
		s.queues[i] = &queue{fd: q.fd}
	}
	return s
}

// Files duplicates the sockets for another process, which passes them to Listen
// as Inherited. The caller closes them.
func (g *Group) Files() (files []*os.File, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range g.workers {
		for _, s := range w.sockets {
			fd, err := unix.FcntlInt(uintptr(s.fd), unix.F_DUPFD_CLOEXEC, 0)
			if err != nil {
				for _, f := range files {
					err = errors.Join(err, f.Close())
				}
				return nil, fmt.Errorf("duplicate UDP socket %v: %w", s.local, err)
			}
			files = append(files, os.NewFile(uintptr(fd), "udp:"+s.local.String()))
		}
	}
	return files, nil
}

// Counters returns the sums over the workers and senders, and the kernel's counts.
func (g *Group) Counters() (Counters, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	total := Counters{Dropped: g.dropped}
	for _, w := range g.workers {
		total.add(&w.count)
		for i := range w.sockets {
			if g.closed {
				break
			}
			n, err := mmsg.Drops(w.sockets[i].fd)
			if err != nil {
				return total, err
			}
			total.Dropped += uint64(n)
		}
	}
	for _, c := range g.senders {
		total.add(c)
	}
	total.Refused = g.refused.get() // after Unsent, so that a counted datagram has a reason
	return total, nil
}

func (c *Counters) add(of *counts) {
	c.Received += of.received.Load()
	c.Sent += of.sent.Load()
	c.Unsent += of.unsent.Load()
	c.Reads += of.reads.Load()
	c.Writes += of.writes.Load()
}

// Close closes the sockets. Run must have returned, and no Sender may be in use. Counters
// still works afterwards.
func (g *Group) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil
	}
	g.closed = true
	var err error
	for _, w := range g.workers {
		for i := range w.sockets {
			if n, dropErr := mmsg.Drops(w.sockets[i].fd); dropErr == nil {
				g.dropped += uint64(n)
			}
			err = errors.Join(err, unix.Close(w.sockets[i].fd))
		}
	}
	if g.wake >= 0 {
		err = errors.Join(err, unix.Close(g.wake))
	}
	if err != nil {
		return fmt.Errorf("close UDP sockets: %w", err)
	}
	return nil
}

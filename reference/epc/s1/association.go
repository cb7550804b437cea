package s1

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"vitrine/wire/s1ap/frame"
)

// The limits of an association.
const (
	// maxQueued is the most octets that may wait to be sent. If a peer reads too
	// slowly, its association is ended.
	maxQueued = 1 << 20
	// patience is the time limit for the rest of a frame, for the first message,
	// and for a write.
	patience = 10 * time.Second
)

// ErrFull is the error for a peer that does not read fast enough.
var ErrFull = errors.New("s1: the peer does not read: too many octets wait to be sent")

// An Association is the MME's end of a connection with an eNodeB. Send and Flush
// may be called concurrently.
type Association struct {
	conn net.Conn
	wake chan struct{} // signals that there is something to write

	mu     sync.Mutex
	out    []byte // frames to write
	failed error
}

// NewAssociation returns the association of an accepted connection.
func NewAssociation(conn net.Conn) *Association {
	return &Association{conn: conn, wake: make(chan struct{}, 1)}
}

// Remote returns the eNodeB's address.
func (a *Association) Remote() net.Addr { return a.conn.RemoteAddr() }

// Local returns the MME's address.
func (a *Association) Local() net.Addr { return a.conn.LocalAddr() }

// Send queues a copy of a message; Flush sends it. An error ends the association,
// and every later Send returns it.
func (a *Association) Send(stream uint16, message []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failed == nil && len(a.out)+frame.HeaderSize+len(message) > maxQueued {
		a.failed = ErrFull
		_ = a.conn.Close() // makes Serve return
	}
	if a.failed != nil {
		return a.failed
	}
	a.out = frame.Append(a.out, stream, message)
	return nil
}

// Take returns the queued frames and empties the queue. It is for an association
// without Serve. The next Send overwrites the frames.
func (a *Association) Take() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := a.out
	a.out = a.out[:0]
	return out
}

// Flush wakes the writer and returns at once.
func (a *Association) Flush() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// Abort ends the association at once.
func (a *Association) Abort() { _ = a.conn.Close() } // makes Serve return

// Serve reads messages and calls received with the frames of each read, until the
// eNodeB shuts the association down, ctx ends or an error occurs. received must
// not keep the octets. Serve closes the connection, and returns nil if the eNodeB
// has shut it down.
func (a *Association) Serve(ctx context.Context, received func(messages []byte)) error {
	stop := context.AfterFunc(ctx, a.Abort)
	defer stop()
	done := make(chan struct{})
	written := make(chan struct{})
	go func() {
		defer close(written)
		a.write(done)
	}()
	err := a.read(received)
	close(done)
	<-written
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failed != nil && (err == nil || errors.Is(err, net.ErrClosed)) {
		err = a.failed
	}
	if a.failed == nil {
		a.failed = net.ErrClosed
	}
	_ = a.conn.Close() // it may already be closed
	return err
}

// read reads until the connection ends. It passes on whole frames with their
// headers, for frame.Cut.
func (a *Association) read(received func(frames []byte)) error {
	var r Reader
	first := true
	for {
		room := r.Room()
		var deadline time.Time
		if first || r.Pending() {
			deadline = time.Now().Add(patience)
		}
		if err := a.conn.SetReadDeadline(deadline); err != nil {
			return fmt.Errorf("s1: set a deadline: %w", err)
		}
		n, err := a.conn.Read(room)
		r.Received(n)
		if frames, wrong := r.frames(); wrong != nil {
			return wrong
		} else if len(frames) > 0 {
			first = false
			received(frames)
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("s1: read from %v: %w", a.conn.RemoteAddr(), err)
		}
	}
}

// frames returns all whole frames received so far.
func (r *Reader) frames() (frames []byte, err error) {
	from := r.from
	for {
		message, err := r.Next()
		if err != nil {
			return nil, err
		}
		if message == nil {
			return r.buffer[from:r.from], nil
		}
	}
}

// write writes queued frames until done, and then the remaining ones.
func (a *Association) write(done <-chan struct{}) {
	var spare []byte
	for last := false; !last; {
		select {
		case <-a.wake:
		case <-done:
			last = true
		}
		a.mu.Lock()
		out := a.out
		a.out = spare[:0]
		a.mu.Unlock()
		spare = out
		if len(out) == 0 {
			continue
		}
		_ = a.conn.SetWriteDeadline(time.Now().Add(patience)) // if the connection is closed, the write below fails
		if _, err := a.conn.Write(out); err != nil {
			a.mu.Lock()
			if a.failed == nil {
				a.failed = fmt.Errorf("s1: write to %v: %w", a.conn.RemoteAddr(), err)
			}
			a.mu.Unlock()
			_ = a.conn.Close() // makes read return
			return
		}
	}
}

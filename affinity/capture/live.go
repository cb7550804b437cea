package capture

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"vitrine/internal/tap"
)

// LiveOptions configure a Live.
type LiveOptions struct {
	Options               // Correct is not used: there is one clock
	Interfaces  []string  // names; "any" alone means all interfaces that are up
	Promiscuous bool      // also frames for other hosts
	Ring        int       // bytes of frames that can wait to be read
	Keep        *Recorder // writes the frames to a file; nil: none
}

// A Live captures frames on network interfaces. Where.Interface of its packets is an index
// in LiveOptions.Interfaces.
type Live struct {
	tap     *tap.Tap
	done    <-chan struct{}
	walker  Walker
	links   []LinkType // by interface
	keep    *Recorder
	frame   tap.Frame
	checked int64     // last check of the interfaces, in ns since 1970
	stopped time.Time // zero: not yet
	until   int64     // frames after this time are ignored, in ns since 1970
	backlog int       // bytes of frames that are still read after the end
	errs    []error
}

// Listen starts a capture on interfaces of this network namespace. The capture ends when
// the context is done; frames captured until then are still read. The caller closes the
// Live. The error is a *vitrine.BadInput for interfaces that do not exist, and a
// *vitrine.Unsupported without the permission to capture.
func Listen(ctx context.Context, o LiveOptions) (*Live, error) {
	interfaces, err := tap.Find(o.Interfaces)
	if err != nil {
		return nil, err
	}
	l := &Live{done: ctx.Done(), keep: o.Keep, until: math.MaxInt64}
	l.walker.init(o.Options)
	var names []string
	for _, at := range interfaces {
		link := Ethernet
		if at.Raw {
			link = Raw
		}
		l.links, names = append(l.links, link), append(names, at.Name)
	}
	l.tap, err = tap.Open(tap.Config{Interfaces: interfaces, Memory: o.Ring, Promiscuous: o.Promiscuous})
	if err != nil {
		return nil, err
	}
	l.backlog = l.tap.Size()
	if err := l.keep.begin(names, l.links); err != nil {
		return nil, errors.Join(err, l.tap.Close())
	}
	return l, nil
}

// Next waits for the next packet. It returns nil after the context is done and all earlier
// packets were read, or after an error. The packet is valid until the next call.
func (l *Live) Next() *Packet {
	for {
		if p := l.walker.Next(); p != nil {
			return p
		}
		if !l.advance() {
			l.walker.finish()
			return nil
		}
		f := &l.frame
		l.walker.Walk(l.links[f.Interface], f.At, Where{Interface: uint16(f.Interface)}, f.Bytes)
	}
}

// advance waits for the next frame and reports whether there is one.
func (l *Live) advance() bool {
	const patience = 100 * time.Millisecond
	for !l.tap.Next(&l.frame) {
		if len(l.errs) > 0 || l.drained() || l.failed(l.check(time.Now().UnixNano())) {
			return false
		}
		wait := patience
		if !l.stopped.IsZero() {
			wait = tap.Linger
		}
		if l.failed(l.tap.Wait(wait)) {
			return false
		}
	}
	if l.isStopped() && l.isLate() {
		return false
	}
	if l.failed(l.check(l.frame.At)) {
		return false
	}
	return !l.failed(l.keep.add(&l.frame))
}

// isLate reports whether the frame was captured after the end. Its time does not show that if the clock
// was set back. So isLate also counts bytes: at the end no more of them wait than the ring can hold.
func (l *Live) isLate() bool {
	l.backlog -= len(l.frame.Bytes)
	return l.frame.At > l.until || l.backlog < 0
}

// drained reports whether the capture has ended and the kernel has passed on all frames.
func (l *Live) drained() bool {
	return l.isStopped() && time.Since(l.stopped) > 5*tap.Linger
}

// isStopped reports whether the context is done. When it first is, isStopped sets the time
// from which frames are ignored.
func (l *Live) isStopped() bool {
	if !l.stopped.IsZero() {
		return true
	}
	select {
	case <-l.done:
		l.stopped = time.Now()
		l.until = l.stopped.UnixNano()
		return true
	default:
		return false
	}
}

// check checks once a second that the interfaces still exist, and counts lost frames.
func (l *Live) check(now int64) error {
	if age := now - l.checked; 0 <= age && age < int64(time.Second) {
		return nil
	}
	l.checked = now
	return errors.Join(l.count(), l.tap.Check())
}

func (l *Live) count() error {
	lost, err := l.tap.Dropped()
	l.walker.counts.Lost += lost
	return err
}

func (l *Live) failed(err error) bool {
	if err != nil {
		l.errs = append(l.errs, err)
	}
	return err != nil
}

// Err returns the error that ended the capture early, after Next returned nil.
func (l *Live) Err() error {
	if len(l.errs) == 0 {
		return nil
	}
	return fmt.Errorf("the capture ended: %w; the packets before that were read", errors.Join(l.errs...))
}

// Counts returns the counts up to now. The caller must not change them.
func (l *Live) Counts() *Counts {
	l.failed(l.count())
	return &l.walker.counts
}

// Close ends the capture and completes the recorded file.
func (l *Live) Close() error { return errors.Join(l.keep.end(), l.tap.Close()) }

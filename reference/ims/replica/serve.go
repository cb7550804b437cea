package replica

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"vitrine/reference/ims"
)

// serve answers peers until ctx is done.
func (s *Store) serve(ctx context.Context, listener net.Listener) error {
	return ims.ServeEach(ctx, listener, -1, func(_ context.Context, conn net.Conn) {
		if err := s.answer(conn); errors.Is(err, errWire) { // any other error: the peer disconnected
			s.config.Log.Warn("a peer was refused", "from", conn.RemoteAddr(), "error", err)
		}
	})
}

// answer serves one connection until it fails. It flushes the answers when no
// more requests are buffered, so that a burst costs one system call.
func (s *Store) answer(conn net.Conn) error {
	r := bufio.NewReaderSize(conn, 16<<10)
	w := bufio.NewWriterSize(conn, 16<<10)
	var in, out []byte
	greeted := false
	for {
		var f frame
		var err error
		if f, in, err = readFrame(r, in); err != nil {
			return err
		}
		if !greeted && f.op != opHello {
			return fmt.Errorf("%w: begins with op %d", errWire, f.op)
		}
		greeted = true
		out, err = s.handle(beginFrame(out), f, time.Now())
		_, _ = w.Write(out) // Flush returns the error
		if err != nil {
			_ = w.Flush()
			return err
		}
		if r.Buffered() == 0 {
			if err := w.Flush(); err != nil {
				return err
			}
		}
	}
}

// handle appends the answer to one request. After an error the connection ends.
func (s *Store) handle(out []byte, f frame, now time.Time) ([]byte, error) {
	refuse := func(err error) ([]byte, error) {
		return endFrame(append(out, err.Error()...), opRefused, f.id), err
	}
	switch f.op {
	case opHello:
		if !strings.HasPrefix(string(f.body), magic) {
			return refuse(fmt.Errorf("%w: the hello is not of this version", errWire))
		}
		return endFrame(out, opOK, f.id), nil
	case opPing:
		return endFrame(out, opOK, f.id), nil
	case opGet:
		if len(f.body) > maxKey {
			return refuse(fmt.Errorf("%w: key of %d bytes", errWire, len(f.body)))
		}
		key := string(f.body)
		r := s.table.get(key, now)
		if r.Version == 0 {
			return endFrame(out, opMissing, f.id), nil
		}
		return endFrame(appendRecord(out, key, r), opRecord, f.id), nil
	case opCompare:
		expect, rest, err := parseVersion(f.body)
		if err != nil {
			return refuse(err)
		}
		key, r, err := parseRecord(rest)
		if err != nil {
			return refuse(err)
		}
		version, ok := s.table.compareAndSet(key, expect, r, now)
		if !ok {
			return endFrame(out, opConflict, f.id), nil
		}
		return endFrame(binary.BigEndian.AppendUint64(out, version), opVersion, f.id), nil
	case opSet:
		key, r, err := parseRecord(f.body)
		if err != nil {
			return refuse(err)
		}
		s.table.set(key, r)
		return endFrame(out, opOK, f.id), nil
	default:
		return refuse(fmt.Errorf("%w: op %d", errWire, f.op))
	}
}

package ims

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
)

// A script is a listener whose Accept returns one outcome after the other.
type script struct {
	net.Listener
	next []any // error, net.Conn or func()
}

func (s *script) Accept() (net.Conn, error) {
	for {
		head := s.next[0]
		s.next = s.next[1:]
		switch v := head.(type) {
		case func():
			v()
		case error:
			return nil, v
		case net.Conn:
			return v, nil
		}
	}
}

func (*script) Addr() net.Addr { return &net.TCPAddr{} }

// TestAcceptOutlastsALackOfDescriptors checks the errors that pass, one that does
// not, and the end of the context.
func TestAcceptOutlastsALackOfDescriptors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer here.Close()
		defer there.Close()
		var none []any
		for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ECONNABORTED} {
			none = append(none, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", errno)})
		}
		conn, err := Accept(t.Context(), &script{next: append(none, here)})
		if err != nil || conn != here {
			t.Errorf("%v, %v", conn, err)
		}
		if conn, err := Accept(t.Context(), &script{next: []any{net.ErrClosed}}); conn != nil || !errors.Is(err, net.ErrClosed) {
			t.Errorf("accept from a closed listener: got %v, %v", conn, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		if conn, err := Accept(ctx, &script{next: []any{func() { cancel() }, net.ErrClosed}}); conn != nil || err != nil {
			t.Errorf("accept after the context ended: got %v, %v", conn, err)
		}
	})
}

// TestServeEachEndsItsConnections checks the limit of connections, and that an error of
// Accept ends the connections that are served.
func TestServeEachEndsItsConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, client := net.Pipe()
		second, refused := net.Pipe()
		served := 0
		err := ServeEach(t.Context(), &script{next: []any{first, second, net.ErrClosed}}, 1, func(_ context.Context, conn net.Conn) {
			served++
			_, _ = conn.Read(make([]byte, 1)) // returns when the connection is closed
		})
		if !errors.Is(err, net.ErrClosed) || served != 1 {
			t.Errorf("%d connections served; got error %v", served, err)
		}
		for _, c := range []net.Conn{client, refused} {
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("read from a connection that is over: got %v", err)
			}
		}
	})
}

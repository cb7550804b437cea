package ims

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"
)

// acceptPause is the time until the next attempt to accept a connection.
const acceptPause = 100 * time.Millisecond

// Accept waits for a connection. While the process or the host has no descriptor for
// it, Accept waits for connections that end. It returns nil and no error when ctx is
// done; the caller closes the listener then.
func Accept(ctx context.Context, l net.Listener) (net.Conn, error) {
	for {
		conn, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = conn.Close() // nothing was read or written
			}
			return nil, nil
		case errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ECONNABORTED):
			select {
			case <-ctx.Done():
			case <-time.After(acceptPause):
			}
		case err != nil:
			return nil, fmt.Errorf("accept connections on %s: %w", l.Addr(), err)
		default:
			return conn, nil
		}
	}
}

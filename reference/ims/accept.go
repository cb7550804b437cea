package ims

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
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

// ServeEach accepts connections until ctx is done, and serves each in its own
// goroutine. It refuses connections while most are open; a negative number is no
// limit. At the end it closes all connections and waits for serve to return. It also
// closes the listener when ctx is done.
func ServeEach(ctx context.Context, l net.Listener, most int, serve func(ctx context.Context, conn net.Conn)) error {
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	var open errgroup.Group
	open.SetLimit(most)
	defer func() { _ = open.Wait() }() // no error: serve returns none
	serving, cancel := context.WithCancel(ctx)
	defer cancel()
	for {
		conn, err := Accept(ctx, l)
		if err != nil || conn == nil {
			return err
		}
		accepted := open.TryGo(func() error {
			defer conn.Close()
			end := context.AfterFunc(serving, func() { conn.Close() })
			defer end()
			serve(serving, conn)
			return nil
		})
		if !accepted {
			_ = conn.Close() // nothing was read or written
		}
	}
}

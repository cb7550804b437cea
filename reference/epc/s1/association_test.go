package s1_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"

	"vitrine/reference/epc/s1"
	"vitrine/wire/s1ap/frame"
)

// pair returns two ends of a TCP connection.
func pair(t *testing.T) (server, client *net.TCPConn) {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	dialed, err := net.Dial("tcp4", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dialed.Close(); accepted.Close() })
	return accepted.(*net.TCPConn), dialed.(*net.TCPConn)
}

// serve runs an association that answers each message with itself.
func serve(t *testing.T, conn net.Conn) <-chan error {
	t.Helper()
	a := s1.NewAssociation(conn)
	ended := make(chan error, 1)
	go func() {
		ended <- a.Serve(t.Context(), func(frames []byte) {
			for {
				m, rest, err := frame.Cut(frames)
				if err != nil || m == nil {
					break
				}
				if err := a.Send(1, m); err != nil {
					t.Error(err)
				}
				frames = rest
			}
			a.Flush()
		})
	}()
	return ended
}

// TestAssociationDeliversWhatWasSentBeforeTheShutdown sends messages and shuts the
// sending side down at once. All of them must be answered.
func TestAssociationDeliversWhatWasSentBeforeTheShutdown(t *testing.T) {
	server, client := pair(t)
	ended := serve(t, server)
	const messages = 1000
	var out []byte
	for i := range messages {
		out = frame.Append(out, frame.UE, []byte{byte(i), byte(i >> 8), 7})
	}
	if _, err := client.Write(out); err != nil {
		t.Fatal(err)
	}
	if err := client.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	in, err := io.ReadAll(client)
	if err != nil {
		t.Fatal(err)
	}
	for i := range messages {
		m, rest, err := frame.Cut(in)
		if err != nil || len(m) != 3 || m[0] != byte(i) || m[1] != byte(i>>8) {
			t.Fatalf("message %d: got % x, error %v", i, m, err)
		}
		in = rest
	}
	if err := <-ended; err != nil {
		t.Errorf("end after a shutdown: got %v", err)
	}
}

func TestAssociationEndsAtAMalformedFrame(t *testing.T) {
	server, client := pair(t)
	ended := serve(t, server)
	if _, err := client.Write(make([]byte, frame.HeaderSize)); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, frame.ErrLength) {
		t.Errorf("got error %v, want ErrLength", err)
	}
	if _, err := client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the connection is still open: %v", err)
	}
}

// TestAssociationOfAPeerThatDoesNotReadEnds checks that queued messages are
// bounded.
func TestAssociationOfAPeerThatDoesNotReadEnds(t *testing.T) {
	server, _ := pair(t)
	a := s1.NewAssociation(server)
	ended := make(chan error, 1)
	go func() { ended <- a.Serve(t.Context(), func([]byte) {}) }()
	message := make([]byte, frame.MaxMessage)
	err := error(nil)
	for sent := 0; err == nil; sent += len(message) {
		if sent > 64<<20 {
			t.Fatal("64 MiB are queued or sent to a peer that does not read")
		}
		err = a.Send(1, message)
		a.Flush()
	}
	if !errors.Is(err, s1.ErrFull) {
		t.Errorf("Send: got %v, want ErrFull", err)
	}
	if err := <-ended; !errors.Is(err, s1.ErrFull) {
		t.Errorf("Serve: got %v, want ErrFull", err)
	}
}

func TestAssociationEndsWithItsContext(t *testing.T) {
	server, _ := pair(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s1.NewAssociation(server).Serve(ctx, func([]byte) {}) }()
	cancel()
	if err := <-ended; err == nil {
		t.Error("the association ended without an error")
	}
}

package ovs

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/fabric"
	"vitrine/fabric/fabrictest"
	"vitrine/internal/netns"
)

// A place is an instance that is attached.
type place struct {
	fabric.Endpoint
	name string
	path string // of its namespace
}

// open makes a fabric for the test's duration.
func open(t *testing.T, c Config) *Fabric {
	t.Helper()
	c.Run = fabrictest.NewRun(t, filepath.Join(t.TempDir(), "runs"))
	f, err := New(t.Context(), c)
	if vitrine.IsUnsupported(err) {
		t.Skip(err)
	}
	must(t, err)
	t.Cleanup(func() {
		if err := f.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return f
}

func attach(t *testing.T, f *Fabric, names ...string) []place {
	t.Helper()
	var places []place
	for _, name := range names {
		p := place{name: name, path: fabrictest.Place(t, f.config.Run.ID, name)}
		var err error
		p.Endpoint, err = f.Attach(t.Context(), fabric.Port{Instance: name, NetNS: p.path})
		must(t, err)
		places = append(places, p)
	}
	return places
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const udpPort = 5060

// serve answers each datagram at an instance with as many bytes until the
// test ends.
func (p place) serve(t *testing.T) {
	t.Helper()
	var conn *net.UDPConn
	must(t, netns.Do(p.path, func() (err error) {
		conn, err = net.ListenUDP("udp4", &net.UDPAddr{IP: p.Addr.AsSlice(), Port: udpPort})
		return err
	}))
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 2000)
		for {
			n, from, err := conn.ReadFromUDP(b)
			if err != nil {
				return
			}
			_, _ = conn.WriteToUDP(append([]byte("answer"), b[len("asking"):n]...), from)
		}
	}()
	t.Cleanup(func() { _ = conn.Close(); <-done })
}

// ask asks another instance n times, each time waiting for the answer, with
// numbered datagrams of size bytes, and gives how many were answered.
func (p place) ask(t *testing.T, of place, n, size int) (answered int) {
	t.Helper()
	var conn *net.UDPConn
	must(t, netns.Do(p.path, func() (err error) {
		conn, err = net.DialUDP("udp4", nil, &net.UDPAddr{IP: of.Addr.AsSlice(), Port: udpPort})
		return err
	}))
	defer conn.Close()
	question, answer := make([]byte, size), make([]byte, 2000)
	copy(question, "asking")
	for i := range n {
		binary.BigEndian.PutUint32(question[6:], uint32(i))
		must(t, conn.SetDeadline(time.Now().Add(5*time.Second)))
		_, err := conn.Write(question)
		must(t, err)
		got, err := conn.Read(answer)
		if err == nil && got == size && binary.BigEndian.Uint32(answer[6:]) == uint32(i) {
			answered++
		}
	}
	return answered
}

// socket opens a packet socket at an instance's interface.
func (p place) socket(t *testing.T, flags int) (fd, index int) {
	t.Helper()
	must(t, netns.Do(p.path, func() error {
		link, err := net.InterfaceByName(p.Interface)
		if err != nil {
			return err
		}
		index = link.Index
		protocol := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|flags, int(protocol)); err != nil {
			return err
		}
		// Room for all: nothing may be lost before it is read.
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20); err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: protocol, Ifindex: index})
	}))
	return fd, index
}

// hear begins to listen to all that arrives at an instance; the function that
// it gives says how often each message of ask was heard since.
func (p place) hear(t *testing.T) func() map[string]int {
	t.Helper()
	fd, _ := p.socket(t, unix.SOCK_NONBLOCK)
	t.Cleanup(func() { _ = unix.Close(fd) })
	return func() map[string]int {
		heard := make(map[string]int)
		b := make([]byte, 2000)
		for {
			n, _, err := unix.Recvfrom(fd, b, 0)
			if errors.Is(err, unix.EAGAIN) {
				return heard
			}
			must(t, err)
			if m := message(b[:n]); m != nil {
				heard[string(m)]++
			}
		}
	}
}

// message is what of a frame is a message of ask, or the answer; nil: it is none.
func message(frame []byte) []byte {
	const headers = 14 + 20 + 8
	if len(frame) < headers+10 {
		return nil
	}
	if m := frame[headers : headers+10]; bytes.HasPrefix(m, []byte("asking")) || bytes.HasPrefix(m, []byte("answer")) {
		return m
	}
	return nil
}

// messages are those of n questions and their answers, each once.
func messages(n int) map[string]int {
	all := make(map[string]int)
	for i := range n {
		for _, word := range []string{"asking", "answer"} {
			all[string(binary.BigEndian.AppendUint32([]byte(word), uint32(i)))] = 1
		}
	}
	return all
}

// Package mirrortest lets instances ask each other numbered questions, and
// counts the questions and answers that arrive at another instance.
package mirrortest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vitrine/internal/netns"
)

const (
	question = "asking"
	answer   = "answer"

	messageSize = len(question) + 4 // the word and a number of 4 bytes
	port        = 5060
)

// A Place is an instance with the interface eth0.
type Place struct {
	NetNS string // path
	Addr  netip.Addr
}

// Must fails the test if there is an error.
func Must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Serve answers each question to the place, in the same length, until the test
// ends.
func (p Place) Serve(t *testing.T) {
	t.Helper()
	var conn *net.UDPConn
	Must(t, netns.Do(p.NetNS, func() (err error) {
		conn, err = net.ListenUDP("udp4", &net.UDPAddr{IP: p.Addr.AsSlice(), Port: port})
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
			_, _ = conn.WriteToUDP(append([]byte(answer), b[len(question):n]...), from)
		}
	}()
	t.Cleanup(func() { _ = conn.Close(); <-done })
}

// Ask sends n questions of size bytes to a place that serves, one after the
// other, and returns how many were answered.
func (p Place) Ask(t *testing.T, of Place, n, size int) (answered int) {
	t.Helper()
	var conn *net.UDPConn
	Must(t, netns.Do(p.NetNS, func() (err error) {
		conn, err = net.DialUDP("udp4", nil, &net.UDPAddr{IP: of.Addr.AsSlice(), Port: port})
		return err
	}))
	defer conn.Close()
	asked, got := make([]byte, size), make([]byte, 2000)
	copy(asked, question)
	for i := range n {
		binary.BigEndian.PutUint32(asked[len(question):], uint32(i))
		Must(t, conn.SetDeadline(time.Now().Add(5*time.Second)))
		_, err := conn.Write(asked)
		Must(t, err)
		length, err := conn.Read(got)
		if err == nil && length == size && binary.BigEndian.Uint32(got[len(answer):]) == uint32(i) {
			answered++
		}
	}
	return answered
}

// Socket opens a packet socket on the place's interface.
func (p Place) Socket(t *testing.T, flags int) (fd, index int) {
	t.Helper()
	Must(t, netns.Do(p.NetNS, func() error {
		link, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		index = link.Index
		protocol := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|flags, int(protocol)); err != nil {
			return err
		}
		// A large receive buffer: no frame may be lost before it is read.
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20); err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: protocol, Ifindex: index})
	}))
	return fd, index
}

// Hear starts to receive all frames at the place. The function that it returns
// counts how often each message arrived since its last call.
func (p Place) Hear(t *testing.T) func() map[string]int {
	t.Helper()
	fd, _ := p.Socket(t, unix.SOCK_NONBLOCK)
	t.Cleanup(func() { _ = unix.Close(fd) })
	return func() map[string]int {
		heard := make(map[string]int)
		b := make([]byte, 2000)
		for {
			n, _, err := unix.Recvfrom(fd, b, 0)
			if errors.Is(err, unix.EAGAIN) {
				return heard
			}
			Must(t, err)
			if m := Message(b[:n]); m != nil {
				heard[string(m)]++
			}
		}
	}
}

// Heard sums up the results of hear until there are n different messages, for
// at most 5 s, because the last copy may still be on its way.
func Heard(hear func() map[string]int, n int) map[string]int {
	heard := make(map[string]int)
	for deadline := time.Now().Add(5 * time.Second); len(heard) < n && time.Now().Before(deadline); {
		for m, times := range hear() {
			heard[m] += times
		}
	}
	return heard
}

// Message returns the question or answer in a frame, or nil if there is none.
func Message(frame []byte) []byte {
	const headers = 14 + 20 + 8
	if len(frame) < headers+messageSize {
		return nil
	}
	if m := frame[headers : headers+messageSize]; bytes.HasPrefix(m, []byte(question)) || bytes.HasPrefix(m, []byte(answer)) {
		return m
	}
	return nil
}

// Messages returns n questions and their answers, each with the count 1.
func Messages(n int) map[string]int {
	all := make(map[string]int)
	for i := range n {
		for _, word := range []string{question, answer} {
			all[string(binary.BigEndian.AppendUint32([]byte(word), uint32(i)))] = 1
		}
	}
	return all
}

package fabrictest

import (
	"encoding/binary"
	"errors"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vitrine/fabric"
	"vitrine/internal/netns"
	"vitrine/internal/runstate"
)

// Mirrors sees that an instance to which another is mirrored receives a
// question that is sent to it, and its answer.
func Mirrors(t *testing.T, f fabric.Fabric, run *runstate.Run) {
	t.Helper()
	mirrorer, ok := f.(fabric.Mirrorer)
	if !ok {
		t.Fatalf("%T cannot mirror", f)
	}
	s := NewBench(t, f, run).s
	client, server, listener := s.attach("bono-1"), s.attach("sprout-1"), s.attach("probe-1")
	if err := mirrorer.Mirror(t.Context(), "sprout-1", "nobody"); err == nil {
		t.Error("mirrored to an instance that is not attached")
	}
	if err := mirrorer.Mirror(t.Context(), "sprout-1", "probe-1"); err != nil {
		t.Fatal(err)
	}
	heard, err := packetSocket(listener)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(heard)
	s.reaches(client, server, "udp")
	for _, want := range []instance{server, client} { // where the question and the answer go to
		if err := hears(heard, want); err != nil {
			t.Errorf("a packet to %s: %v", want.port.Instance, err)
		}
	}
}

// packetSocket receives all frames of the instance's interface.
func packetSocket(in instance) (fd int, err error) {
	const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8 // in network order
	err = netns.Do(in.place, func() error {
		link, err := net.InterfaceByName(in.Interface)
		if err != nil {
			return err
		}
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		timeout := unix.Timeval{Sec: 5}
		return errors.Join(
			unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout),
			unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link.Index}),
		)
	})
	return fd, err
}

// hears waits for a UDP packet to the instance's address.
func hears(fd int, to instance) error {
	const (
		ethernet    = 14
		protocol    = ethernet + 9
		destination = ethernet + 16
	)
	frame := make([]byte, 2048)
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); {
		n, err := unix.Read(fd, frame)
		if err != nil {
			return err
		}
		if n >= ethernet+headers && binary.BigEndian.Uint16(frame[12:]) == unix.ETH_P_IP && frame[protocol] == unix.IPPROTO_UDP &&
			[4]byte(frame[destination:]) == to.Addr.As4() {
			return nil
		}
	}
	return errors.New("none heard")
}

package forwarder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/fabric/fabrictest"
	"vitrine/internal/hosttest"
	"vitrine/internal/mmsg"
	"vitrine/internal/netns"
)

// numbers distinguishes the namespaces of the tests in one process.
var numbers atomic.Int64

// namespace creates a network namespace for the test.
func namespace(t testing.TB) string {
	t.Helper()
	return fabrictest.Place(t, fmt.Sprintf("forward%d", os.Getpid()), fmt.Sprint(numbers.Add(1)))
}

// pair connects two namespaces with a veth pair whose ends have these names.
func pair(t testing.TB, from, fromName, to, toName string, mtu int) {
	t.Helper()
	fd, err := unix.Open(to, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	in(t, from, func() error {
		v := netlink.NewVeth(netlink.LinkAttrs{Name: fromName, MTU: mtu, Flags: net.FlagUp, TxQLen: -1})
		v.PeerName, v.PeerMTU, v.PeerNamespace = toName, uint32(mtu), netlink.NsFd(fd)
		return netlink.LinkAdd(v)
	})
	for _, end := range []struct{ netns, name string }{{from, fromName}, {to, toName}} {
		in(t, end.netns, func() error {
			quiet := "/proc/sys/net/ipv6/conf/" + end.name + "/disable_ipv6"
			if err := os.WriteFile(quiet, []byte("1"), 0); err != nil && !os.IsNotExist(err) { // below an MTU of 1280 bytes there is no IPv6
				return err
			}
			l, err := netlink.LinkByName(end.name)
			if err != nil {
				return err
			}
			return netlink.LinkSetUp(l)
		})
	}
	for _, end := range []struct{ netns, name string }{{from, fromName}, {to, toName}} {
		// A link drops frames until the kernel has noticed that both of its ends are up.
		hosttest.Until(t, 10*time.Second, end.name+" is up", func() (up bool) {
			in(t, end.netns, func() error {
				l, err := netlink.LinkByName(end.name)
				up = err == nil && l.Attrs().OperState == netlink.OperUp
				return err
			})
			return up
		})
	}
}

func in(t testing.TB, path string, f func() error) {
	t.Helper()
	if err := netns.Do(path, f); err != nil {
		t.Fatal(err)
	}
}

// A port is a raw socket on an interface.
type port struct {
	t    testing.TB
	fd   int
	addr [6]byte
	got  int // frames received
}

func openPort(t testing.TB, path, name string) *port {
	t.Helper()
	p := &port{t: t}
	in(t, path, func() (err error) {
		i, err := net.InterfaceByName(name)
		if err != nil {
			return err
		}
		p.addr = [6]byte(i.HardwareAddr)
		p.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		t.Cleanup(func() { unix.Close(p.fd) })
		for _, option := range []int{unix.PACKET_IGNORE_OUTGOING, unix.PACKET_AUXDATA} {
			if err := unix.SetsockoptInt(p.fd, unix.SOL_PACKET, option, 1); err != nil {
				return err
			}
		}
		if err := unix.SetsockoptTimeval(p.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}); err != nil {
			return err
		}
		return unix.Bind(p.fd, &unix.SockaddrLinklayer{Protocol: mmsg.NetworkOrder(unix.ETH_P_ALL), Ifindex: i.Index})
	})
	return p
}

func (p *port) send(frame []byte) {
	p.t.Helper()
	if _, err := unix.Write(p.fd, frame); err != nil {
		p.t.Fatalf("send: %v", err)
	}
}

// receive returns the next frame, with its VLAN tag put back.
func (p *port) receive() []byte {
	p.t.Helper()
	frame, control := make([]byte, 1<<16), make([]byte, 256)
	n, c, _, _, err := unix.Recvmsg(p.fd, frame, control, 0)
	for errors.Is(err, unix.EINTR) { // the runtime's own signals
		n, c, _, _, err = unix.Recvmsg(p.fd, frame, control, 0)
	}
	if err != nil {
		p.t.Fatalf("receive: %v (%d before)", err, p.got)
	}
	p.got++
	frame = frame[:n]
	messages, err := unix.ParseSocketControlMessage(control[:c])
	if err != nil || len(messages) != 1 {
		p.t.Fatalf("control messages: %v, %v", messages, err)
	}
	aux := (*unix.TpacketAuxdata)(unsafe.Pointer(&messages[0].Data[0]))
	if aux.Status&unix.TP_STATUS_VLAN_VALID == 0 {
		return frame
	}
	tag := []byte{byte(aux.Vlan_tpid >> 8), byte(aux.Vlan_tpid), byte(aux.Vlan_tci >> 8), byte(aux.Vlan_tci)}
	return append(append(append([]byte(nil), frame[:12]...), tag...), frame[12:]...)
}

// silent reports whether no frame is waiting.
func (p *port) silent() bool {
	_, _, err := unix.Recvfrom(p.fd, make([]byte, 1<<16), unix.MSG_DONTWAIT)
	return errors.Is(err, unix.EAGAIN)
}

// drain discards the received frames.
func (p *port) drain() {
	for !p.silent() {
	}
}

// running is a forwarder started by its command line.
type running struct {
	t     testing.TB
	end   context.CancelFunc
	lines *json.Decoder
	ready string
	done  chan error
}

// start returns when the forwarder has printed that it is ready.
func start(t testing.TB, path string, args ...string) *running {
	t.Helper()
	ctx, end := context.WithCancel(context.Background())
	r := &running{t: t, end: end, done: make(chan error, 1)}
	out, write := io.Pipe()
	go func() {
		err := netns.Do(path, func() error { return Run(ctx, args, write, io.Discard) })
		_ = write.CloseWithError(err)
		r.done <- err
	}()
	t.Cleanup(func() {
		end()
		_ = out.Close() // unblocks the writer
	})
	line := make([]byte, 512)
	n, err := out.Read(line)
	if vitrine.IsUnsupported(err) {
		t.Skip(err)
	}
	r.ready = string(line[:n])
	if err != nil || !strings.HasPrefix(r.ready, "forwarder: ready") {
		t.Fatalf("%q, %v", r.ready, err)
	}
	r.lines = json.NewDecoder(out)
	return r
}

// stop ends the forwarder and returns its report.
func (r *running) stop() Report {
	r.t.Helper()
	r.end()
	var report Report
	if err := r.lines.Decode(&report); err != nil {
		r.t.Fatal(err)
	}
	if err := <-r.done; err != nil {
		r.t.Fatal(err)
	}
	return report
}

// receiveOffload turns on generic receive offload, and with it NAPI.
func receiveOffload(t testing.TB, path, name string) {
	in(t, path, func() error {
		e, err := ethtool.NewEthtool()
		if err != nil {
			return err
		}
		defer e.Close()
		return e.Change(name, map[string]bool{"rx-gro": true})
	})
}

func remove(t testing.TB, path, name string) {
	in(t, path, func() error {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return netlink.LinkDel(l)
	})
}

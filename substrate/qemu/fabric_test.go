package qemu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"vitrine"
	"vitrine/fabric"
	"vitrine/fabric/bridge"
	"vitrine/fabric/macvtap"
	"vitrine/fabric/ovs"
	"vitrine/internal/hosttest"
	"vitrine/internal/netns"
	"vitrine/internal/runstate"
	"vitrine/substrate/process"
)

func TestQemuOnBridge(t *testing.T) {
	t.Parallel()
	onFabric(t, func(run *runstate.Run) (fabric.Fabric, error) { return bridge.New(bridge.Config{Run: run}) })
}

// TestQemuOnMacvtap tests the fabric whose interface QEMU opens as a character device.
func TestQemuOnMacvtap(t *testing.T) {
	t.Parallel()
	onFabric(t, func(run *runstate.Run) (fabric.Fabric, error) { return macvtap.New(macvtap.Config{Run: run}) })
}

func TestQemuOnOVS(t *testing.T) {
	t.Parallel()
	onFabric(t, func(run *runstate.Run) (fabric.Fabric, error) {
		return ovs.New(context.Background(), ovs.Config{Run: run})
	})
}

// sent is how many bytes a connection carries. They need several segments, so that offloads are
// used.
const sent = 300_000

// onFabric puts a virtual machine and a process on the fabric and lets each connect to the other.
// It also checks the machine's address and vantage.
func onFabric(t *testing.T, open func(*runstate.Run) (fabric.Fabric, error)) {
	s, run := newSubstrate(t, nil)
	f, err := open(run)
	hosttest.Need(t, err)
	hosttest.AtEnd(t, func() error { return f.Close(context.Background()) })
	peer, peerAddr := neighbour(t, run, f)
	in := create(t, s, smallSpec(t, run, "sprout-1"))
	end, err := f.Attach(t.Context(), fabric.Port{Instance: "sprout-1", NetNS: in.NetNS()})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := output(t, in, `ip -br -4 addr show "$1" | tr -s ' '`, end.Interface), end.Interface+" UP "+end.Addr.String()+"/16"; got != want {
		t.Errorf("interface in the machine: got %q, want %q", got, want)
	}
	fromMachine(t, in, peer, peerAddr)
	toMachine(t, in, peer, end.Addr)
	if v := in.Vantage(); v.NetNS != in.NetNS() || v.Interface != end.Interface {
		t.Errorf("vantage: got interface %q in namespace %q", v.Interface, v.NetNS)
	}
}

// neighbour makes a place for a process on the fabric. It returns the path of the place's network
// namespace and its address.
func neighbour(t *testing.T, run *runstate.Run, f fabric.Fabric) (namespace string, addr netip.Addr) {
	t.Helper()
	places, err := process.New(process.Config{Network: process.NetworkNamespace, Run: run})
	if err != nil {
		t.Fatal(err)
	}
	hosttest.AtEnd(t, func() error { return places.Close(context.Background()) })
	in, err := places.Create(t.Context(), smallSpec(t, run, "bono-1"))
	if err != nil {
		t.Fatal(err)
	}
	end, err := f.Attach(t.Context(), fabric.Port{Instance: "bono-1", NetNS: in.NetNS()})
	if err != nil {
		t.Fatal(err)
	}
	return in.NetNS(), end.Addr
}

// fromMachine sends bytes from the machine to a listener at the process's place. The listener
// confirms that it received all.
func fromMachine(t *testing.T, in *Instance, peer string, addr netip.Addr) {
	t.Helper()
	var l *net.TCPListener
	err := netns.Do(peer, func() (err error) {
		l, err = net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(netip.AddrPortFrom(addr, 0)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	received := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			received <- err
			return
		}
		_, err = io.CopyN(io.Discard, conn, sent)
		_, answering := fmt.Fprintln(conn, "all")
		received <- errors.Join(err, answering, conn.Close())
	}()
	port := l.Addr().(*net.TCPAddr).Port
	err = in.Run(t.Context(), vitrine.Command{Args: []string{"timeout", "300", "bash", "-euc",
		`exec 3<>"/dev/tcp/$0/$1"; head -c "$2" /dev/zero >&3; read -r line <&3; [ "$line" = all ]`,
		addr.String(), fmt.Sprint(port), fmt.Sprint(sent)}})
	if err := errors.Join(err, l.Close(), <-received); err != nil {
		t.Errorf("transfer from the machine: %v", err)
	}
}

// toMachine connects from the process's place to a server in the machine, and checks that all its
// bytes arrive.
func toMachine(t *testing.T, in *Instance, peer string, addr netip.Addr) {
	t.Helper()
	_, err := in.Start(t.Context(), vitrine.Command{Args: []string{"busybox", "nc", "-ll", "-p", "7777", "-e", "head", "-c", fmt.Sprint(sent), "/dev/zero"}})
	if err != nil {
		t.Fatal(err)
	}
	var conn net.Conn
	hosttest.Until(t, patience, "the machine listens", func() bool {
		err := netns.Do(peer, func() (err error) {
			conn, err = net.DialTimeout("tcp4", netip.AddrPortFrom(addr, 7777).String(), time.Minute)
			return err
		})
		return err == nil
	})
	defer conn.Close()
	if n, err := io.Copy(io.Discard, conn); err != nil || n != sent {
		t.Errorf("transfer to the machine: got %d bytes, error %v", n, err)
	}
	if err := in.Stop(t.Context(), 0); err != nil {
		t.Error(err)
	}
}

// TestQemuMachinesMeet checks that a machine reaches another one at its address if both have a
// macvtap as their interface.
func TestQemuMachinesMeet(t *testing.T) {
	t.Parallel()
	s, run := newSubstrate(t, nil)
	f, err := macvtap.New(macvtap.Config{Run: run})
	if err != nil {
		t.Fatal(err)
	}
	hosttest.AtEnd(t, func() error { return f.Close(context.Background()) })
	var machines []*Instance
	var addrs []netip.Addr
	for _, name := range []string{"sprout-1", "bono-1"} {
		in := create(t, s, smallSpec(t, run, name))
		end, err := f.Attach(t.Context(), fabric.Port{Instance: name, NetNS: in.NetNS()})
		if err != nil {
			t.Fatal(err)
		}
		machines, addrs = append(machines, in), append(addrs, end.Addr)
	}
	p, err := machines[1].Start(t.Context(), vitrine.Command{Args: []string{"busybox", "nc", "-ll", "-p", "7777", "-e", "hostname"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := output(t, machines[0], `for try in $(seq 3000); do busybox nc -w 5 "$1" 7777 < /dev/null && exit; sleep 0.1; done`, addrs[1].String()); got != "bono-1" {
		select {
		case <-p.Done():
			t.Error(p.Err(), read(t, filepath.Join(machines[1].spec.Dir, logFile)))
		default:
		}
		t.Errorf("got answer %q from %s", got, addrs[1])
	}
}

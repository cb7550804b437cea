package monitor

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/internal/netns"
)

// startInNetNS starts a child in its own network namespace. Interfaces there send nothing on their
// own.
func startInNetNS(t *testing.T) (*child, string) {
	t.Helper()
	skipUnsupported(t, netns.Possible())
	c := startChild(t, unix.CLONE_NEWNET, nil)
	path := fmt.Sprintf("/proc/%d/ns/net", c.pid())
	err := netns.Do(path, func() error {
		err := os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a kernel without IPv6
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return c, path
}

func TestNetworkBetweenNetNS(t *testing.T) {
	a, aNS := startInNetNS(t)
	b, bNS := startInNetNS(t)
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.Namespace = "eth0", netlink.NsPid(a.pid())
	cable := netlink.NewVeth(attrs)
	cable.PeerName, cable.PeerNamespace = "eth0", netlink.NsPid(b.pid())
	if err := netlink.LinkAdd(cable); err != nil {
		t.Fatal(err)
	}
	for _, ns := range []string{aNS, bNS} {
		if err := netns.Do(ns, func() error { return errors.Join(setUp("lo"), setUp("eth0")) }); err != nil {
			t.Fatal(err)
		}
	}
	m := newManual(t,
		vitrine.Vantage{Instance: "a-1", PID: a.pid(), NetNS: aNS},
		vitrine.Vantage{Instance: "b-1", PID: b.pid(), NetNS: bNS},
		vitrine.Vantage{Instance: "c-1", PID: b.pid()})
	m.sample()
	const frames, size = 1000, 500
	if err := netns.Do(aNS, func() error { return errors.Join(sendFrames("eth0", frames, size), sendOverLoopback()) }); err != nil {
		t.Fatal(err)
	}
	m.sample()
	for i, want := range []struct{ rx, tx float64 }{{0, frames * size}, {frames * size, 0}} {
		s := m.instances[i]
		samples := s.use.samples
		from, to := samples[0], samples[1]
		if rx, tx := to.total[rx]-from.total[rx], to.total[tx]-from.total[tx]; rx != want.rx || tx != want.tx {
			t.Errorf("%s received %v and sent %v bytes, want %v and %v", s.use.vantage.Instance, rx, tx, want.rx, want.tx)
		}
		use := m.Use(m.began.Add(from.at), m.began.Add(to.at))[s.use.vantage.Instance]
		seconds := (to.at - from.at).Seconds()
		if use.RxBytes == nil || use.TxBytes == nil || !near(*use.RxBytes*seconds+1, want.rx+1, 1e-6) || !near(*use.TxBytes*seconds+1, want.tx+1, 1e-6) {
			t.Errorf("%s: use is %+v, want rates of the same bytes", s.use.vantage.Instance, use)
		}
	}
	use := m.Use(m.began, m.began.Add(m.instances[2].at))["c-1"]
	if use.RxBytes != nil || use.TxBytes != nil || use.Missing["network"] != "shares the host's network" {
		t.Errorf("an instance without a namespace: %+v", use)
	}
}

func setUp(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(link)
}

// sendFrames sends Ethernet frames that no protocol handles.
func sendFrames(name string, frames, size int) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	frame := make([]byte, size)
	copy(frame, "\xff\xff\xff\xff\xff\xff\x02\x00\x00\x00\x00\x01\x88\xb5") // broadcast; IEEE 802 local experimental EtherType
	for range frames {
		if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: link.Attrs().Index}); err != nil {
			return err
		}
	}
	return nil
}

func sendOverLoopback() error {
	to, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer to.Close()
	_, err = to.WriteTo(make([]byte, 1000), to.LocalAddr())
	return err
}

func TestMissingNetNS(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gone")
	m := newManual(t, vitrine.Vantage{Instance: "a-1", PID: os.Getpid(), NetNS: path})
	m.sample()
	m.sample()
	use, _ := lastUse(t, m)
	if use.RxBytes != nil || !strings.Contains(use.Missing["network"], path) {
		t.Errorf("use is %+v", use)
	}
	if use.CPU == nil {
		t.Errorf("CPU is missing, too: %v", use.Missing)
	}
}

// TestFallingNetworkCounters checks that counters that fall do not count as traffic. They fall
// when an interface is removed.
func TestFallingNetworkCounters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dev")
	write := func(rx, tx int) {
		table := fmt.Sprintf("head\nhead\n  eth0: %d 1 0 0 0 0 0 0 %d 1 0 0 0 0 0 0\n", rx, tx)
		if err := os.WriteFile(path, []byte(table), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(1000, 10)
	f, err := openFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s := newSubject("a-1", "a")
	s.sources = []source{netDev{file: f}}
	buf := make([]byte, 4096)
	s.read(buf)
	if s.total[rx] != 1000 || s.total[tx] != 10 {
		t.Fatalf("read %v and %v", s.total[rx], s.total[tx])
	}
	write(400, 20)
	s.read(buf)
	if s.total[rx] == s.total[rx] || !strings.Contains(s.why[rx], "removed") || s.why[tx] == "" {
		t.Errorf("rx is %v, why %q", s.total[rx], s.why[rx])
	}
}

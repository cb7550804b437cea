package ims_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/prometheus/procfs"

	"vitrine"
	"vitrine/internal/hosttest"
)

func TestCommandLines(t *testing.T) {
	for _, c := range []struct{ name, args, want string }{
		{"bono", "", `--listen ""`},
		{"bono", "--listen here --sprout 127.0.0.1:1", `--listen "here"`},
		{"bono", "--listen 127.0.0.1:1", "--sprout is empty"},
		{"bono", "--listen 0.0.0.0:1 --sprout 127.0.0.1:1", "--listen 0.0.0.0:1"},
		{"sprout", "--listen [::]:1 --homestead 127.0.0.1:1", "--listen [::]:1"},
		{"bono", "--listen 127.0.0.1:1 --sprout 127.0.0.1:1 --connections 0", "--connections 0"},
		{"bono", "--listen 127.0.0.1:1 --sprout 127.0.0.1:1 --refresh -1s", "--refresh -1s"},
		{"bono", "--listen 127.0.0.1:1 --sprout 127.0.0.1:1 --director there", `--director "there"`},
		{"bono", "--speed 9", "unknown flag: --speed"},
		{"bono", "extra", `argument "extra"`},
		{"sprout", "--listen 127.0.0.1:1", "--homestead is empty"},
		{"sprout", "--listen 127.0.0.1:1 --homestead 127.0.0.1", `--homestead "127.0.0.1"`},
		{"sprout", "--listen 127.0.0.1:1 --homestead 127.0.0.1:1 --peers 127.0.0.1:2", "--peers without --self"},
		{"sprout", "--listen 127.0.0.1:1 --homestead 127.0.0.1:1 --self 127.0.0.1:3 --peers 127.0.0.1:2", "not among --peers"},
		{"sprout", "--listen 127.0.0.1:1 --homestead 127.0.0.1:1 --workers x", "--workers"},
		{"sprout", "--listen 127.0.0.1:1 --homestead 127.0.0.1:1 --publish some", `--publish "some"`},
		{"homestead", "--listen 127.0.0.1:1 --self 127.0.0.1:3", "--self without --peers"},
		{"homestead", "--listen 127.0.0.1:1 --subscribers 0", "--subscribers 0"},
		{"homer", "--listen 127.0.0.1:x", `--listen "127.0.0.1:x"`},
		{"ralf", "--listen", "--listen"},
	} {
		var out, errs hosttest.Output
		err := components[c.name](t.Context(), strings.Fields(c.args), &out, &errs)
		if !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "vitrine reference "+c.name) {
			t.Errorf("%s %s: got %v, want a bad input about %s", c.name, c.args, err, c.want)
		}
		if out.String() != "" {
			t.Errorf("%s %s printed %q", c.name, c.args, out.String())
		}
	}
}

func TestHelp(t *testing.T) {
	for name, run := range components {
		var out, errs hosttest.Output
		if err := run(t.Context(), []string{"--help"}, &out, &errs); err != nil || !strings.Contains(out.String(), "--listen") {
			t.Errorf("%s --help: got error %v, output %q", name, err, out.String())
		}
	}
}

func TestPortInUse(t *testing.T) {
	s := newSite(t)
	at := s.at(1, 5060)
	tcp, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	udp, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(at)))
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	free := s.at(2, 5060)
	for _, c := range []struct{ name, args, flag string }{
		{"bono", "--listen " + at + " --sprout " + free, "--listen"},
		{"sprout", "--listen " + at + " --homestead " + free, "--listen"},
		{"sprout", "--listen " + free + " --homestead " + free + " --self " + at + " --peers " + at, "--self"},
		{"homestead", "--listen " + at, "--listen"},
		{"homestead", "--listen " + free + " --metrics " + at, "--metrics"},
		{"homer", "--listen " + at, "--listen"},
		{"ralf", "--listen " + at, "--listen"},
	} {
		var out, errs hosttest.Output
		err := components[c.name](t.Context(), strings.Fields(c.args), &out, &errs)
		if err == nil || !strings.Contains(err.Error(), at+": the port is in use") || !strings.Contains(err.Error(), c.flag) {
			t.Errorf("%s %s: got %v, want that the port is in use", c.name, c.args, err)
		}
	}
}

func TestComponentsEndWhenTold(t *testing.T) {
	s := newSite(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for name, args := range map[string]string{
		"bono":      "--listen " + s.at(1, 5060) + " --sprout " + s.at(11, 5060),
		"sprout":    "--listen " + s.at(11, 5060) + " --homestead " + s.at(21, 8888) + " --self " + s.at(11, 7000) + " --peers " + s.list(11, 3, 7000),
		"homestead": "--listen " + s.at(21, 8888) + " --self " + s.at(21, 7000) + " --peers " + s.list(21, 3, 7000),
		"homer":     "--listen " + s.at(31, 7888),
		"ralf":      "--listen " + s.at(32, 10888),
	} {
		var out, errs hosttest.Output
		if err := components[name](ctx, strings.Fields(args), &out, &errs); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// openPorts returns the local addresses of the UDP sockets connected to an IPv4
// address.
func openPorts(t *testing.T, remote string) (ports []string) {
	t.Helper()
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		t.Fatal(err)
	}
	sockets, err := proc.NetUDP()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sockets {
		if fmt.Sprintf("%s:%d", s.RemAddr, s.RemPort) == remote {
			ports = append(ports, fmt.Sprintf("%s:%d", s.LocalAddr, s.LocalPort))
		}
	}
	return ports
}

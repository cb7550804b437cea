package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"

	"vitrine"
	"vitrine/internal/netns"
)

// TestAffinityOfInterfaceEqualsThatOfItsCapture captures registrations at an interface until it is
// interrupted. The analysis must equal that of the capture file of --write.
func TestAffinityOfInterfaceEqualsThatOfItsCapture(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lo.pcapng")
	onLoopback(t, func() error {
		live, err := listen(false, "affinity", "-i", "lo", "--write", file, "--json")
		if err != nil {
			return err
		}
		var kept, errs bytes.Buffer
		if code := run(t.Context(), []string{"affinity", file, "--json"}, &kept, &errs); code != exitDone {
			return fmt.Errorf("the capture: exit %d: %s", code, errs.String())
		}
		if live != kept.String() {
			return fmt.Errorf("analysis of the interface:\n%s\nanalysis of its capture:\n%s", live, kept.String())
		}
		if !strings.Contains(live, `"type": "REGISTER"`) || !strings.Contains(live, fmt.Sprintf(`"messages": %d,`, 4*registrations)) {
			return fmt.Errorf("%d registrations are not found in\n%s", registrations, live)
		}
		return nil
	})
}

func TestMessagesOfAnInterfaceEndWithTheDuration(t *testing.T) {
	onLoopback(t, func() error {
		live, err := listen(true, "affinity", "-i", "any", "--messages", "--duration", "300ms")
		if err != nil {
			return err
		}
		if n := strings.Count(live, " SIP 200 REGISTER of "); n != 2*registrations {
			return fmt.Errorf("%d answers, want %d:\n%s", n, 2*registrations, live)
		}
		return nil
	})
}

func TestAffinityOfInterfacesRefusesMistakes(t *testing.T) {
	for given, want := range map[string]string{
		"-i eth9":                                "eth9: no such interface: there are ",
		"-i lo --duration -1s":                   "--duration: -1s: want more than 0s",
		"-i lo --max-memory 1MiB":                "--max-memory: 1MiB: at least 8MiB",
		"-i lo --explain 1":                      "--explain: no capture is named",
		"epc --promiscuous":                      "--promiscuous: no interface is named: name one with --interface",
		"epc -w x.pcapng":                        "--write: no interface is named",
		"x.pcap --messages --out x":              "[messages out] are set",
		"x.pcap --messages --explain 1":          "[messages explain] are set",
		"-i lo none.pcap":                        "none.pcap: no such file",
		"--messages --duration 1s main.go":       "--duration: no interface is named",
		"--messages -i lo affinity_live_test.go": "affinity_live_test.go: named together with an interface: analyse captures and interfaces separately",
	} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), append([]string{"affinity"}, strings.Fields(given)...), &out, &errs); code != exitBadInput || !strings.Contains(errs.String(), want) {
			t.Errorf("%s: got exit code %d: %s, want %q", given, code, errs.String(), want)
		}
	}
}

// onLoopback runs a test in a new network namespace whose lo is up.
func onLoopback(t *testing.T, f func() error) {
	t.Helper()
	if err := netns.Possible(); vitrine.IsUnsupported(err) {
		t.Skip(err)
	}
	err := netns.Try(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(lo); err != nil {
			return err
		}
		return f()
	})
	if err != nil {
		t.Fatal(err)
	}
}

const registrations = 20

// listen runs a command that captures, and returns its output. Users register once the capture has
// begun. Then listen interrupts the command, unless ends is true: the command then ends by itself.
func listen(ends bool, verb ...string) (string, error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	sockets, err := openSockets()
	if err != nil {
		return "", err
	}
	defer sockets.close()
	var out bytes.Buffer
	var once sync.Once
	var sent error
	printed := &onWrite{do: func() { // the capture has begun
		once.Do(func() {
			sent = sockets.register()
			if !ends {
				cancel(errInterrupted)
			}
		})
	}}
	if code := run(ctx, verb, &out, printed); code != exitDone || sent != nil || !strings.HasPrefix(printed.String(), "capturing at ") {
		return "", fmt.Errorf("exit %d: %s: %w", code, printed.String(), sent)
	}
	return out.String(), nil
}

// sockets holds the sockets of a phone, a proxy and a registrar.
type sockets [3]*net.UDPConn

func openSockets() (s sockets, err error) {
	for i := range s {
		if s[i], err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, byte(i+1)), Port: 5060}); err != nil {
			s.close()
			return s, err
		}
	}
	return s, nil
}

func (s sockets) close() {
	for _, c := range s {
		if c != nil {
			_ = c.Close()
		}
	}
}

// register sends the messages of registrations from the phone through the proxy to the registrar,
// and the answers back.
func (s sockets) register() error {
	for n := range registrations {
		head := fmt.Sprintf("From: <sip:u%d@ims.test>;tag=a%d\r\nTo: <sip:u%d@ims.test>\r\nCall-ID: call-%d\r\nCSeq: 1 REGISTER\r\nContent-Length: 0\r\n\r\n", n, n, n, n)
		outer := fmt.Sprintf("Via: SIP/2.0/UDP 127.0.0.1:5060;branch=z9hG4bKa%d\r\n", n)
		inner := fmt.Sprintf("Via: SIP/2.0/UDP 127.0.0.2:5060;branch=z9hG4bKb%d\r\n", n) + outer
		for _, m := range []struct {
			from, to int
			text     string
		}{
			{0, 1, "REGISTER sip:ims.test SIP/2.0\r\n" + outer + head}, {1, 2, "REGISTER sip:ims.test SIP/2.0\r\n" + inner + head},
			{2, 1, "SIP/2.0 200 OK\r\n" + inner + head}, {1, 0, "SIP/2.0 200 OK\r\n" + outer + head},
		} {
			if _, err := s[m.from].WriteTo([]byte(m.text), s[m.to].LocalAddr()); err != nil {
				return err
			}
		}
	}
	return nil
}

// TestUnwritableCaptureIsRefused checks that --write fails if the folder of the file does
// not exist.
func TestUnwritableCaptureIsRefused(t *testing.T) {
	onLoopback(t, func() error {
		var out, errs bytes.Buffer
		code := run(t.Context(), []string{"affinity", "-i", "lo", "-w", filepath.Join(t.TempDir(), "none", "x.pcapng")}, &out, &errs)
		if code != exitFailed || !strings.Contains(errs.String(), os.ErrNotExist.Error()) && !strings.Contains(errs.String(), "no such file") {
			return fmt.Errorf("exit %d: %s", code, errs.String())
		}
		return nil
	})
}

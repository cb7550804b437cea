package main

import (
	"bytes"
	"context"
	"errors"
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

// TestMessagesOfAnInterfaceEndWithTheDuration also checks that the duration begins with the capture: the command needs
// longer than that to open the interfaces.
func TestMessagesOfAnInterfaceEndWithTheDuration(t *testing.T) {
	onLoopback(t, func() error {
		live, err := listen(true, "affinity", "-i", "any", "--messages", "--duration", "1ms")
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

// TestReadingTakesHalfOfTheMemory: with --messages too, or it would number messages otherwise than the analysis.
func TestReadingTakesHalfOfTheMemory(t *testing.T) {
	for given, want := range map[string]int{"": 256 << 20, "64MiB": 32 << 20} {
		f := affinityFlags{memory: given}
		if o, err := f.reading(); err != nil || o.MaxMemory != want {
			t.Errorf("%q: got %d bytes, error %v, want %d", given, o.MaxMemory, err, want)
		}
	}
}

// TestAffinityChecksFilesFirst checks that mistakes in files are errors before anything is captured, and
// that an analysis that cannot be written is printed.
func TestAffinityChecksFilesFirst(t *testing.T) {
	names := filepath.Join(t.TempDir(), "names.yaml")
	if err := os.WriteFile(names, []byte("functions: [{name: MME, profile: none.json, rate: 10}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, given := range map[string][]string{
		"names.yaml:1:34: ": {"affinity", "-i", "eth9", "--names", names},
		"--out: ":           {"affinity", "-i", "eth9", "--out", filepath.Join(names, "out")},
	} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), given, &out, &errs); code != exitBadInput || !strings.Contains(errs.String(), want) || strings.Contains(errs.String(), "no such interface") {
			t.Errorf("%q: got exit code %d: %s, want only the error at %s", given, code, errs.String(), want)
		}
	}
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"affinity", "epc/attach", "--out", filepath.Join(names, "out")}, &out, &errs); code == exitDone || out.Len() == 0 || errs.Len() == 0 {
		t.Errorf("folder in a file: got exit code %d, the output %q and %s, want the analysis and an error", code, &out, errs.String())
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

// TestCapturesArePrivate checks that only its user may read the file of --write, also if an old file had
// another mode. A link in its place must not choose another file.
func TestCapturesArePrivate(t *testing.T) {
	dir := t.TempDir()
	file, link, old := filepath.Join(dir, "new.pcapng"), filepath.Join(dir, "link.pcapng"), filepath.Join(dir, "old.pcapng")
	if err := errors.Join(os.WriteFile(old, []byte("old"), 0o644), os.Symlink(old, link)); err != nil {
		t.Fatal(err)
	}
	onLoopback(t, func() error {
		var out, errs bytes.Buffer
		if code := run(t.Context(), []string{"affinity", "-i", "lo", "-w", link}, &out, &errs); code != exitFailed || !strings.Contains(errs.String(), "symbolic link") {
			return fmt.Errorf("a link: exit %d: %s", code, errs.String())
		}
		if text, err := os.ReadFile(old); err != nil || string(text) != "old" {
			return fmt.Errorf("the target of the link holds %q, error %w", text, err)
		}
		for _, path := range []string{file, old} {
			if _, err := listen(false, "affinity", "-i", "lo", "-w", path); err != nil {
				return err
			}
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
				return fmt.Errorf("the capture is %v, error %w", info, err)
			}
		}
		return nil
	})
}

package catalog

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"vitrine"
	"vitrine/fabric"
	"vitrine/internal/capturetest"
)

// A tapped fabric captures the traffic of the instances of some components, from
// Attach to Detach.
type tapped struct {
	fabric.Fabric
	components []string
	filter     string // of the packets (pcap-filter(7))
	dir        string // folder of the captures

	mu     sync.Mutex
	taps   map[string]*tapping // by instance
	inside map[netip.Addr]bool // addresses of the function, not of the generator
}

// Attach wires the instance. If the instance is of one of the components, Attach also
// starts its capture.
func (f *tapped) Attach(ctx context.Context, port fabric.Port) (fabric.Endpoint, error) {
	end, err := f.Fabric.Attach(ctx, port)
	if err != nil || port.Instance == vitrine.Generator {
		return end, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inside[end.Addr] = true
	if !slices.ContainsFunc(f.components, func(c string) bool { return strings.HasPrefix(port.Instance, c+"-") }) {
		return end, nil
	}
	file := filepath.Join(f.dir, port.Instance+".pcap")
	capture, err := capturetest.Start(port.NetNS, end.Interface, f.filter, file)
	if err != nil {
		return end, errors.Join(err, f.Fabric.Detach(context.WithoutCancel(ctx), port.Instance))
	}
	f.taps[port.Instance] = &tapping{capture, file, end.Addr}
	return end, nil
}

// Detach stops the capture and detaches the instance.
func (f *tapped) Detach(ctx context.Context, instance string) error {
	f.mu.Lock()
	tapped := f.taps[instance]
	f.mu.Unlock()
	var capture error
	if tapped != nil {
		capture = tapped.Stop()
	}
	return errors.Join(capture, f.Fabric.Detach(ctx, instance))
}

// A tapping is the capture of one instance's interface.
type tapping struct {
	*capturetest.Capture
	file string
	addr netip.Addr
}

// captured counts the REGISTER transactions in a capture between phones and the
// instance. Call-ID and CSeq identify a transaction.
type captured struct {
	packets      int64 // received REGISTERs, including retransmissions
	transactions int64 // distinct transactions
	calls        int64 // distinct Call-IDs
	ok           int64 // transactions answered with 200
	challenged   int64 // transactions answered with 401
	complete     int64 // calls with two transactions answered with 200: registered and deregistered
}

// count reads the capture with tshark. inside holds the addresses of the
// function's instances; count ignores messages between them.
func (t *tapping) count(inside map[netip.Addr]bool) (captured, error) {
	out, err := exec.Command("tshark", "-n", "-r", t.file, "-d", "udp.port==5060,sip", "-Y", `sip.CSeq.method == "REGISTER"`,
		"-T", "fields", "-e", "ip.src", "-e", "ip.dst", "-e", "sip.Status-Code", "-e", "sip.CSeq.seq", "-e", "sip.Call-ID").Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		return captured{}, fmt.Errorf("read %s: %w: %s", t.file, err, failed.Stderr)
	} else if err != nil {
		return captured{}, err
	}
	var c captured
	requests, oks, challenges := map[string]bool{}, map[string]bool{}, map[string]bool{}
	calls, answered := map[string]bool{}, map[string]int{}
	for line := range strings.Lines(string(out)) {
		field := strings.Split(strings.TrimRight(line, "\n"), "\t")
		if len(field) != 5 {
			return c, fmt.Errorf("read %s: tshark printed %q", t.file, line)
		}
		from, err1 := netip.ParseAddr(field[0])
		to, err2 := netip.ParseAddr(field[1])
		if err := errors.Join(err1, err2); err != nil {
			return c, fmt.Errorf("read %s: %w", t.file, err)
		}
		if inside[from] && inside[to] {
			continue
		}
		call, transaction := field[4], field[4]+" "+field[3]
		switch status := field[2]; {
		case status == "" && to == t.addr:
			c.packets++
			requests[transaction], calls[call] = true, true
		case status == "200" && from == t.addr && !oks[transaction]:
			oks[transaction] = true
			answered[call]++
		case status == "401" && from == t.addr:
			challenges[transaction] = true
		}
	}
	for _, n := range answered {
		if n == 2 {
			c.complete++
		}
	}
	c.transactions, c.calls = int64(len(requests)), int64(len(calls))
	c.ok, c.challenged = int64(len(oks)), int64(len(challenges))
	return c, nil
}

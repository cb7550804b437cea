package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"vitrine/internal/capturetest"
	"vitrine/report/ladder"
)

// TestACaptureMayComeThroughAPipe checks that affinity reads a capture from another program's pipe.
func TestACaptureMayComeThroughAPipe(t *testing.T) {
	file := recordWeb(t, webUsers)
	capture, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pipe, written := namedPipe(t, capture, func() {})
	var want, got, stderr bytes.Buffer
	for from, out := range map[string]*bytes.Buffer{file: &want, pipe: &got} {
		if code := run(t.Context(), []string{"affinity", from}, out, &stderr); code != exitDone {
			t.Fatalf("%s: exit code %d: %s", from, code, stderr.String())
		}
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	if want.Len() == 0 || got.String() != want.String() {
		t.Errorf("output for the pipe:\n%s\noutput for the file:\n%s", got.String(), want.String())
	}
}

// namedPipe returns a pipe to which another program writes a capture. The program calls last before
// it closes the pipe.
func namedPipe(t *testing.T, capture []byte, last func()) (name string, written <-chan error) {
	t.Helper()
	name = filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		out, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err == nil {
			_, err = out.Write(capture)
			last()
			err = errors.Join(err, out.Close())
		}
		done <- err
	}()
	return name, done
}

// TestAnInterruptedPipeIsAnalysed interrupts affinity while it reads the end of a pipe, as Ctrl-C does
// in tcpdump -w - | vitrine affinity /dev/stdin. All that came through the pipe must be analysed.
func TestAnInterruptedPipeIsAnalysed(t *testing.T) {
	const messages, size = 6000, 10 // more than the pipe holds, so that the reading has begun when all is written
	var capture bytes.Buffer
	file, frames := capturetest.NewFile(&capture), capturetest.Frames{}
	phone, proxy := netip.MustParseAddrPort("192.0.2.1:5060"), netip.MustParseAddrPort("192.0.2.2:5060")
	for n := range messages {
		file.Add(int64(1_700_000_000+n)*1e9, frames.UDP(phone, proxy, fmt.Appendf(nil, "MESSAGE sip:b@ims.test SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.1:5060;branch=z9hG4bK%d\r\n"+
			"From: <sip:a@ims.test>;tag=a%d\r\nTo: <sip:b@ims.test>\r\nCall-ID: c%d\r\nCSeq: 1 MESSAGE\r\nContent-Length: %d\r\n\r\n%s", n, n, n, size, strings.Repeat("x", size))))
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	pipe, written := namedPipe(t, capture.Bytes(), func() { cancel(errInterrupted) })
	var out, errs bytes.Buffer
	if code := run(ctx, []string{"affinity", pipe}, &out, &errs); code != exitDone {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("\nMESSAGE: %d transactions ", messages); !strings.Contains(out.String(), want) {
		t.Errorf("got\n%s\nwant %q", out.String(), want)
	}
}

// TestWhatReadsNothingReplacesNothing names an interface that does not exist, and a capture that ends
// within its header. The result of an earlier analysis must stay.
func TestWhatReadsNothingReplacesNothing(t *testing.T) {
	dir, cut := t.TempDir(), filepath.Join(t.TempDir(), "cut.pcap")
	affinityOf(t, exitDone, "epc/attach", "--out", dir)
	want, err := os.ReadFile(filepath.Join(dir, ladder.JSONFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(cut, []byte{0xd4, 0xc3, 0xb2, 0xa1, 2, 0}, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		status int
		given  []string
	}{{exitBadInput, []string{"-i", "eth9"}}, {exitFailed, []string{cut}}} {
		var out, errs bytes.Buffer
		code := run(t.Context(), append([]string{"affinity", "--out", dir}, c.given...), &out, &errs)
		if code != c.status || out.Len() > 0 {
			t.Errorf("%v: exit code %d: %s\nprinted\n%s", c.given, code, errs.String(), out.String())
		}
		if got, err := os.ReadFile(filepath.Join(dir, ladder.JSONFile)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%v: the analysis was replaced, error %v", c.given, err)
		}
	}
}

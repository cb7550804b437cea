package truth

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// lines returns the lines of a log.
func lines(t *testing.T, file string) (all []Line) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		var l Line
		if err := json.Unmarshal(s.Bytes(), &l); err != nil {
			t.Fatalf("%v: %s", err, s.Text())
		}
		all = append(all, l)
	}
	return all
}

func open(t *testing.T) (l *Log, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "messages")
	l, err := Open(file, "bono")
	if err != nil {
		t.Fatal(err)
	}
	return l, file
}

func TestLinesAreReadAsWritten(t *testing.T) {
	l, file := open(t)
	want := Line{
		Function: "bono", Received: true, Src: netip.MustParseAddrPort("192.0.2.1:5060"), Dst: netip.MustParseAddrPort("[2001:db8::1]:5060"),
		Protocol: SIP, Name: "INVITE sip:\"a\"\x00é@ims.test", Event: l.Begin(), Type: "INVITE", Key: Hash([]byte("INVITE")),
	}
	l.Write(want)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	got := lines(t, file)
	if len(got) != 1 || got[0].At == 0 {
		t.Fatalf("%+v", got)
	}
	want.At = got[0].At
	if got[0] != want {
		t.Errorf("%+v\nwas written as\n%+v", want, got[0])
	}
}

func TestInvalidNamesStayOnOneLine(t *testing.T) {
	l, file := open(t)
	for _, name := range []string{"\x01\x7f", "\xff\xfe", "\a\v", "a\nb"} {
		l.Write(Line{Protocol: SIP, Name: name})
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if got := lines(t, file); len(got) != 4 {
		t.Errorf("%d lines, want 4", len(got))
	}
}

func TestWithoutALogNothingIsAllocated(t *testing.T) {
	var l *Log
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() {
		of := l.Begin()
		l.Write(Line{Event: of})
		if l.Client(With(ctx, of), "GET /") != ctx {
			t.Error("With returned another context")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if l.Close() != nil || From(ctx) != 0 {
		t.Error("the context has a log or an event")
	}
}

func TestAFullLogSaysSo(t *testing.T) {
	l, file := open(t)
	l.left = 1
	l.Write(Line{Protocol: SIP})
	l.Write(Line{Protocol: SIP})
	if err := l.Close(); !errors.Is(err, ErrFull) {
		t.Errorf("Close: %v", err)
	}
	if got := lines(t, file); len(got) != 1 {
		t.Errorf("%d lines, want 1", len(got))
	}
}

// TestBothEndsOfHTTPLogTheSame checks that a client and a server log the same messages,
// with one event each, by ordinals and by marks.
func TestBothEndsOfHTTPLogTheSame(t *testing.T) {
	server, serverFile := open(t)
	client, clientFile := open(t)
	var marks []string
	s := httptest.NewServer(server.Server(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		marks = append(marks, r.Header.Get(MarkHeader))
		_, _ = io.WriteString(w, "OK")
	})))
	of := client.Begin()
	ctx := client.Client(With(t.Context(), of), "GET /a")
	for range 2 {
		ask(ctx, t, s.Client(), s.URL+"/a")
	}
	marked := &http.Client{Transport: client.Mark(s.Client().Transport)}
	ask(With(t.Context(), of), t, marked, s.URL+"/b")
	s.Close()
	for _, l := range []*Log{server, client} {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	asked, served := lines(t, clientFile), lines(t, serverFile)
	if len(asked) != 6 || len(served) != 6 {
		t.Fatalf("%d and %d lines, want 6 each", len(asked), len(served))
	}
	for i, l := range asked[:4] {
		other := served[i]
		if l.Event != of || l.Src != other.Src || l.Dst != other.Dst || l.Key != other.Key || l.Received == other.Received {
			t.Errorf("line %d: %+v at the client, %+v at the server", i, l, other)
		}
	}
	if strings.Join(marks, ",") != ",,1" || asked[4].Key != "1" || asked[4].Event != of || asked[5].Key != "1" || !asked[5].Received {
		t.Errorf("marks %q; %+v", marks, asked[4:])
	}
}

func ask(ctx context.Context, t *testing.T, c *http.Client, url string) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, answer.Body)
	answer.Body.Close()
}

package http2_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"

	nethttp2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/h2c" //nolint:staticcheck // net/http has no upgrade to h2c

	"vitrine/wire/http1"
	"vitrine/wire/http2"
)

// A recordedListener records the connections that it accepts, in one recording.
type recordedListener struct {
	net.Listener
	to *recording
}

func (l recordedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return &recorder{Conn: c, to: l.to, isServer: true}, err
}

// TestReadsCurl reads what curl sends with prior knowledge, and after an upgrade.
func TestReadsCurl(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("this test needs curl: ", err)
	}
	if out, err := exec.CommandContext(t.Context(), curl, "--version").Output(); err != nil || !strings.Contains(string(out), "HTTP2") {
		t.Skip("this curl has no HTTP/2: ", err)
	}
	for _, of := range []struct {
		options    []string
		paths      []string
		isUpgraded bool // the first request is one of HTTP/1.1
		want       []string
	}{
		{[]string{"--http2-prior-knowledge", "--data", "request"}, []string{"/a"}, false, []string{"1 POST http example /a body request end"}},
		{[]string{"--http2"}, []string{"/a", "/b"}, true, []string{"3 GET http example /b end"}},
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		r := &recording{}
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // net/http resets the stream of a body that is not read
			_, _ = w.Write([]byte("response"))
		})
		server := &http.Server{Handler: h2c.NewHandler(handler, &nethttp2.Server{})} //nolint:staticcheck // as above
		served := make(chan error)
		go func() { served <- server.Serve(recordedListener{l, r}) }()
		arguments := append(of.options, "--silent", "--show-error", "--noproxy", "*", "--header", "Host: example")
		var answers []string
		for i, path := range of.paths {
			arguments = append(arguments, "http://"+l.Addr().String()+path)
			answers = append(answers, fmt.Sprintf("%d 200 body response end", 2*i+1))
		}
		out, err := exec.CommandContext(t.Context(), curl, arguments...).CombinedOutput()
		if err != nil || string(out) != strings.Repeat("response", len(of.paths)) {
			t.Fatalf("curl %s: %v: %s", of.options, err, out)
		}
		_ = server.Close()
		<-served
		if got := perStream(t, behindUpgrade(t, r.direction(false), of.isUpgraded)); !slices.Equal(got, of.want) {
			t.Errorf("curl %s: got %q, want %q", of.options, got, of.want)
		}
		if got := perStream(t, behindUpgrade(t, r.direction(true), of.isUpgraded)); !slices.Equal(got, answers) {
			t.Errorf("curl %s: got %q, want %q", of.options, got, answers)
		}
	}
}

// behindUpgrade returns what follows the message that upgrades a connection.
func behindUpgrade(t *testing.T, octets []byte, isUpgraded bool) []byte {
	t.Helper()
	var d http1.Decoder
	for isUpgraded {
		n, e, err := d.Next(octets)
		if err != nil || e == http1.More {
			t.Fatal(e, err)
		}
		if octets = octets[n:]; e == http1.End || e == http1.Head && d.Message.Status == http.StatusSwitchingProtocols {
			break
		}
	}
	return octets
}

// perStream returns a line for each stream, without most fields.
func perStream(t *testing.T, octets []byte) (lines []string) {
	t.Helper()
	var d http2.Decoder
	at := map[uint32]int{}
	for {
		n, e, err := d.Next(octets)
		if octets = octets[n:]; err != nil {
			t.Fatal(err)
		}
		line := show(&d, e)
		switch e {
		case http2.More:
			return lines
		case http2.Head:
			d.Message.Fields = slices.DeleteFunc(slices.Clone(d.Message.Fields), func(f http2.Field) bool { return f.Name[0] != ':' })
			at[d.Stream], lines = len(lines), append(lines, show(&d, e))
		case http2.Body, http2.End:
			lines[at[d.Stream]] += line[strings.IndexByte(line, ' '):]
		}
	}
}

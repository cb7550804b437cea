package message

import (
	"slices"
	"testing"
	"time"

	"vitrine/internal/capturetest"
)

// TestUpgradeToHTTP2 checks that a connection goes on in HTTP/2 after it was upgraded.
func TestUpgradeToHTTP2(t *testing.T) {
	const settings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	lines, s := read(t, Options{}, connection(t, "192.0.2.3:50000", "192.0.2.4:9999",
		">GET /first HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
		"<HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"+settings,
		">"+string(preface)+settings+"\x00\x00\x03\x01\x05\x00\x00\x00\x03\x82\x84\x86",
		"<\x00\x00\x01\x01\x05\x00\x00\x00\x03\x88"))
	expect(t, lines, "HTTP request \"GET /first\"", "HTTP answer \"101 GET /first\"| of 1", "HTTP2 request \"GET /\"", "HTTP2 answer \"200 GET /\"| of 3")
	for _, p := range s.Protocols {
		if len(p.Undecodable) != 0 {
			t.Errorf("messages were not decoded: %+v", p)
		}
	}
}

// TestTunnels checks that what follows a 101, or a 2xx to CONNECT, is not HTTP in either
// direction, whoever speaks first, and is no body of the answer.
func TestTunnels(t *testing.T) {
	const connect = "CONNECT sip.test:443 HTTP/1.1\r\nHost: sip.test:443\r\n\r\n"
	for name, c := range map[string]struct{ pieces, want []string }{
		"TLS behind a proxy": {
			[]string{">" + connect, "<HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 2\r\n\r\nno",
				">" + connect, "<HTTP/1.1 200 Connection established\r\n\r\n", ">\x16\x03\x01\x00\x05hello", "<\x16\x03\x03\x00\x05hello"},
			[]string{`HTTP request "CONNECT /{}"`, `HTTP answer "407 CONNECT /{}"| of 1 cause 407`,
				`HTTP request "CONNECT /{}"`, `HTTP answer "200 CONNECT /{}" 39 B of 3`},
		},
		"WebSocket": {
			[]string{">GET /chat HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", "<HTTP/1.1 101 Switching Protocols\r\n\r\n",
				">\x82\x84\n\r\n\r\n123", "<\x82\x08whatever"},
			[]string{`HTTP request "GET /chat"`, `HTTP answer "101 GET /chat"| of 1`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			lines, s := read(t, Options{}, connection(t, "192.0.2.3:50000", "192.0.2.4:9999", c.pieces...))
			expect(t, lines, c.want...)
			if len(s.Protocols) != 1 || len(s.Protocols[0].Undecodable) != 0 {
				t.Errorf("the tunnel was read as HTTP: %+v", s.Protocols)
			}
			if want := []Edge{{"192.0.2.3", "192.0.2.4", "TCP", 9999, 2, 20, 1}}; !slices.Equal(s.Unknown, want) {
				t.Errorf("got edges %+v, want %+v", s.Unknown, want)
			}
		})
	}
}

// TestSilenceOfHTTP2 checks that a connection goes on after a silence. Its second request refers to
// a field of the first one.
func TestSilenceOfHTTP2(t *testing.T) {
	const settings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	lines, s := read(t, Options{}, built(t, func(f *capturetest.File) {
		at := start
		add := func(frame []byte) {
			at += 1e6
			f.Add(at, frame)
		}
		conn := capturetest.Conn{Client: client, Server: end("192.0.2.4:9999"), Frames: &capturetest.Frames{}}
		conn.Open(add)
		add(conn.Send(false, []byte(string(preface)+settings+"\x00\x00\x0a\x01\x05\x00\x00\x00\x01\x82\x86\x44\x06/first")))
		add(conn.Send(true, []byte(settings+"\x00\x00\x01\x01\x05\x00\x00\x00\x01\x88")))
		at += int64(20 * time.Minute)
		add(conn.Send(false, []byte("\x00\x00\x03\x01\x05\x00\x00\x00\x03\x82\x86\xbe")))
		add(conn.Send(true, []byte("\x00\x00\x01\x01\x05\x00\x00\x00\x03\x88")))
	}))
	const request, answer = `HTTP2 request "GET /first"`, `HTTP2 answer "200 GET /first"`
	expect(t, lines, request, answer+"| of 1", request, answer+"| of 3")
	if len(s.Unknown) != 0 {
		t.Errorf("some of it was not recognised: %+v", s.Unknown)
	}
}

// TestLostEndOfARequest checks that a request over HTTP/2 whose last frame is not in the capture is
// delivered before its answer.
func TestLostEndOfARequest(t *testing.T) {
	const settings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	lines, _ := read(t, Options{}, built(t, func(f *capturetest.File) {
		at := start
		add := func(frame []byte) {
			at += int64(time.Second)
			f.Add(at, frame)
		}
		conn := capturetest.Conn{Client: client, Server: end("192.0.2.4:9999"), Frames: &capturetest.Frames{}}
		conn.Open(add)
		add(conn.Send(false, []byte(string(preface)+settings+"\x00\x00\x03\x01\x04\x00\x00\x00\x01\x83\x84\x86")))
		conn.Send(false, []byte("\x00\x00\x05\x00\x01\x00\x00\x00\x01hello")) // is lost
		add(conn.Send(true, []byte(settings+"\x00\x00\x01\x01\x05\x00\x00\x00\x01\x88")))
		add(conn.Send(true, []byte(settings)))
	}))
	expect(t, lines, `HTTP2 request "POST /"`, `HTTP2 answer "200 POST /"| of 1`)
}

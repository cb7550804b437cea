package message

import (
	"slices"
	"testing"
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

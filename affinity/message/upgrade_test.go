package message

import "testing"

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

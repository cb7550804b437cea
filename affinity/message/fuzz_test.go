package message

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"vitrine/internal/capturetest"
)

// FuzzRead reads whole captures. Whatever is in them, what it delivers is in order, and
// its counts add up.
func FuzzRead(f *testing.F) {
	seed := func(write func(f *capturetest.File)) {
		content, err := os.ReadFile(built(f, write))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content)
	}
	seed(func(out *capturetest.File) {
		registrations(3, func(at int64, frame []byte, _ bool) { out.Add(at, frame); out.Add(at+1, frame) })
	})
	seed(func(out *capturetest.File) {
		at := start
		conn := capturetest.Conn{Client: client, Server: server, Frames: &capturetest.Frames{}}
		add := func(frame []byte) { at += 1e6; out.Add(at, frame) }
		conn.Open(add)
		add(conn.Send(false, diameterMessage(302, true, 1, "a")))
		add(conn.Send(true, diameterMessage(302, false, 1, "a")))
	})
	for _, pieces := range [][]string{
		{">" + mongoFind, "<" + mongoReply},
		{">" + frame(s1Setup), "<" + frame(s1SetupResponse)},
		{">*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nvalue\r\n", "<+OK\r\n"},
		{">PUT /kv/a%40b.cde?ttl=9s HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi", "<HTTP/1.1 204 No Content\r\n\r\n"},
		{">POST /kv HTTP/1.1\r\nContent-Length: 58\r\n\r\n{\"ops\":[{\"op\":\"put\",\"key\":\"a\",\"value\":\"aGk=\",\"ttl\":\"9s\"}]}"},
		{">" + string(preface) + "\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x03\x01\x05\x00\x00\x00\x01\x82\x84\x86", "<\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x01\x01\x05\x00\x00\x00\x01\x88"},
	} {
		content, err := os.ReadFile(connection(f, "192.0.2.3:50000", "192.0.2.4:9999", pieces...))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content)
	}
	for _, name := range []string{"gtp_c.pcap", "pfcp.pcapng", "diameter.pcap"} {
		if content, err := os.ReadFile(filepath.Join(shared, name)); err == nil {
			f.Add(content)
		}
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		file := filepath.Join(t.TempDir(), "x.pcap")
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		var messages uint64
		s, err := Read(context.Background(), []string{file}, Options{MaxMemory: 4 << 20}, func(m *Message) error {
			messages++
			switch {
			case m.ID != messages:
				t.Fatalf("message %d should have number %d", m.ID, messages)
			case m.Answers >= m.ID:
				t.Fatalf("message %d answers the later or same message %d", m.ID, m.Answers)
			case m.From == "" || m.To == "" || m.Bytes < 0 || m.Protocol == Unknown:
				t.Fatalf("got the invalid message %+v", m)
			case m.Arrived != 0 && m.Arrived < m.Time:
				t.Fatalf("message %d arrived before it was sent", m.ID)
			case len(m.Identifiers) > maxIdentifiers:
				t.Fatalf("got %d identifiers, above the limit", len(m.Identifiers))
			}
			for _, id := range m.Identifiers {
				if len(id.Text) == 0 || len(id.Text) > maxText {
					t.Fatalf("identifier %v has %d bytes", id.Kind, len(id.Text))
				}
			}
			return nil
		})
		if s == nil {
			t.Fatalf("no summary: %v", err)
		}
		var sum uint64
		for _, p := range s.Protocols {
			if p.Requests+p.Answers+p.Notices+p.Repeats != p.Messages {
				t.Fatalf("counts do not add up: %+v", p)
			}
			sum += p.Messages
		}
		if sum != messages || s.Messages != messages {
			t.Fatalf("got %d messages, %d in the protocols, %d in the summary", messages, sum, s.Messages)
		}
	})
}

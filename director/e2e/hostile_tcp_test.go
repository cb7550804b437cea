package e2e

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"vitrine/internal/hosttest"
)

// crowdSize is the number of concurrent attacking connections: the director's limit. They come
// from twenty sources, so that they stay below the limit of each source.
var crowdSize = map[bool]int{false: 10_000, true: 3000}[hosttest.Raced]

// strangers are the attackers that use TCP.
func (h *hostile) strangers() hosttest.Strangers {
	s := hosttest.Strangers{Address: h.address}
	for i := range attackers {
		s.Sources = append(s.Sources, h.host(firstAttacker+i))
	}
	return s
}

// crowd returns an attack by connections that never send a whole message. The director must
// close all of them. The attack calls act for each connection once a second.
func (h *hostile) crowd(name string, act func(c net.Conn, second int)) attack {
	return attack{
		name: name, lasts: 5 * time.Second, counter: "vitrine_director_connections_refused_total",
		run: func(ctx context.Context, _ float64) (int, error) {
			return crowdSize, h.strangers().Crowd(ctx, crowdSize, patience, act)
		},
	}
}

// silentCrowd opens connections and sends nothing.
func (h *hostile) silentCrowd() attack {
	return h.crowd("silent TCP clients", func(net.Conn, int) {})
}

// slowCrowd sends a request at one byte a second on each connection.
func (h *hostile) slowCrowd() attack {
	text := request("REGISTER", "slow", "")
	return h.crowd("TCP clients that send a byte a second", func(c net.Conn, second int) {
		_ = c.SetWriteDeadline(time.Now().Add(time.Second)) // fails once the director has ended the connection
		_, _ = c.Write(text[second%len(text) : second%len(text)+1])
	})
}

// largeHeads sends message heads that do not end, in small and in large pieces.
func (h *hostile) largeHeads() attack {
	head := append([]byte("REGISTER sip:proof.test SIP/2.0\r\nX: "), bytes.Repeat([]byte("x"), 80_000)...)
	return attack{
		name: "oversized heads", times: 0.005, counter: drops, labels: []string{`reason="malformed"`},
		run: func(ctx context.Context, rate float64) (int, error) {
			return h.strangers().Burst(ctx, rate, false, func(n int) (pieces [][]byte) {
				size := []int{64, 1024, len(head)}[n%3]
				for rest := head; len(rest) > 0; rest = rest[min(size, len(rest)):] {
					pieces = append(pieces, rest[:min(size, len(rest))])
				}
				return pieces
			})
		},
	}
}

// pipelined returns requests to send without waiting for answers. No rule matches their method.
func pipelined(of string, requests int) (text []byte) {
	for i := range requests {
		text = append(text, request("MESSAGE", fmt.Sprintf("%s-%d", of, i), "")...)
	}
	return text
}

// pipelinedGarbage sends requests and then garbage.
func (h *hostile) pipelinedGarbage() attack {
	random := rand.New(rand.NewPCG(7, 7))
	garbage := make([]byte, 20_000)
	for i := range garbage {
		garbage[i] = byte(random.Uint32())
	}
	garbage = append(garbage, "\r\n\r\n"...)
	return attack{
		name: "pipelined garbage", times: 0.02, counter: drops, labels: []string{`reason="malformed"`},
		run: func(ctx context.Context, rate float64) (int, error) {
			return h.strangers().Burst(ctx, rate, false, func(n int) [][]byte {
				return [][]byte{append(pipelined(fmt.Sprintf("pipe-%d", n), 50), garbage...)}
			})
		},
	}
}

// deafClients send requests and keep-alives (RFC 5626 section 3.5.1) and do not read the answers.
func (h *hostile) deafClients() attack {
	pings := bytes.Repeat([]byte("\r\n\r\n"), 20_000)
	return attack{
		name: "TCP clients that do not read", times: 0.002, counter: drops, labels: []string{`reason="queue_full"`},
		run: func(ctx context.Context, rate float64) (int, error) {
			return h.strangers().Burst(ctx, rate, true, func(n int) [][]byte {
				return [][]byte{append(pipelined(fmt.Sprintf("deaf-%d", n), 50), pings...)}
			})
		},
	}
}

package message

import (
	"cmp"
	"net/netip"
	"slices"

	"vitrine/affinity/capture"
)

// maxEdges bounds the number of edges.
const maxEdges = 1 << 16

// edges counts the traffic between functions in unknown protocols.
type edges struct {
	all     map[edgeKey]*Edge
	turns   map[uint64]struct{} // conversations in which the client spoke last
	dropped uint64
}

type edgeKey struct {
	client, server *Function
	transport      capture.Transport
	port           uint16
}

func (e *edges) init() {
	e.all, e.turns = map[edgeKey]*Edge{}, map[uint64]struct{}{}
}

// of returns the edge between two functions, or nil if there are too many.
func (e *edges) of(client, server *Function, t capture.Transport, port uint16) *Edge {
	key := edgeKey{client, server, t, port}
	edge := e.all[key]
	if edge == nil && len(e.all) < maxEdges {
		edge = &Edge{Client: client.Name, Server: server.Name, Transport: t.String(), Port: port}
		e.all[key] = edge
	}
	return edge
}

// datagram counts a datagram.
func (e *edges) datagram(r *reading, o *origin, t capture.Transport, n int) {
	client, server := o.src, o.dst
	forth := !e.answers(r, o, t)
	if !forth {
		client, server = o.dst, o.src
	}
	edge := e.of(r.functions.of(client, false, 0, maxStrangers), r.functions.of(server, true, 1, maxStrangers), t, server.Port())
	if edge == nil {
		e.dropped++
		return
	}
	edge.Packets++
	edge.Bytes += uint64(n)
	key := join(hashPair(hashEnd(o.src), hashEnd(o.dst)), uint64(t))
	if forth {
		if len(e.turns) >= maxEdges {
			clear(e.turns)
		}
		e.turns[key] = struct{}{}
	} else if _, ok := e.turns[key]; ok {
		delete(e.turns, key)
		edge.RoundTrips++
	}
}

// answers reports whether a datagram comes from the server. If both ports are equal, the
// function that received first is the server.
func (e *edges) answers(r *reading, o *origin, t capture.Transport) bool {
	switch {
	case o.dst.Addr().IsMulticast(), o.dst.Addr() == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return false
	case o.src.Port() != o.dst.Port():
		return serves(o.src, o.dst)
	}
	_, known := e.all[edgeKey{r.functions.of(o.dst, false, 1, maxStrangers), r.functions.of(o.src, true, 0, maxStrangers), t, o.src.Port()}]
	return known
}

// serves reports whether the first of two ends looks more like the server: it has a
// well-known port and the other one has not, or the lower port.
func serves(a, b netip.AddrPort) bool {
	if known := wellKnown(a.Port()); known != wellKnown(b.Port()) {
		return known
	}
	return a.Port() < b.Port()
}

// wellKnown reports whether servers of signalling protocols have the port by default.
func wellKnown(port uint16) bool {
	switch port {
	case 5060, 3868, 3869, 2123, 2152, 8805, 36412, 38412, 6379, 27017, 80, 443, 8080:
		return true
	}
	return false
}

// list returns the edges, those with the most bytes first.
func (e *edges) list() []Edge {
	all := []Edge{}
	for _, edge := range e.all {
		all = append(all, *edge)
	}
	slices.SortFunc(all, func(a, b Edge) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Client, b.Client), cmp.Compare(a.Server, b.Server),
			cmp.Compare(a.Transport, b.Transport), cmp.Compare(a.Port, b.Port))
	})
	return all
}

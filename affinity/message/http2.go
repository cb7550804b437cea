package message

import (
	"bytes"
	"encoding/binary"
	"maps"
	"slices"

	"vitrine/wire/http2"
)

// The bounds of HTTP/2.
const (
	maxStreams = 512 // streams kept per connection
	streamSize = 160 // bytes of a stream in the map of its connection, which does not shrink
)

// h2Stream is a stream of a connection.
type h2Stream struct {
	open    [2]*slot // messages in progress, by half
	at      [2]int64
	scanned [2]int
	body    [2]int
}

var preface = []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")

// looksHTTP2 reports whether data begins with the preface of a client, or with the
// SETTINGS of a server (RFC 9113 section 3.4).
func looksHTTP2(data []byte) verdict {
	if n := min(len(data), len(preface)); bytes.Equal(data[:n], preface[:n]) {
		if n == len(preface) {
			return yes
		}
		return more
	}
	const header, settings, entry = 9, 4, 6
	if len(data) < header {
		if data[0] != 0 || len(data) > 3 && data[3] != settings {
			return no
		}
		return more
	}
	length := binary.BigEndian.Uint32(data) >> 8
	if length%entry != 0 || length > 16*entry || data[3] != settings || data[4] > 1 || binary.BigEndian.Uint32(data[5:]) != 0 {
		return no
	}
	return yes
}

// readHTTP2 reads frames of HTTP/2.
func (r *reading) readHTTP2(x *half, data []byte) (n int, err error) {
	if x.http2 == nil {
		x.http2 = &http2.Decoder{}
		if looksHTTP2(data) == no {
			x.http2.Lost(-1)
		}
	}
	d := x.http2
	for {
		k, event, err := d.Next(data[n:])
		n += k
		if err != nil {
			return min(n+1, len(data)), err
		}
		switch event {
		case http2.More:
			return n, nil
		case http2.Head:
			r.headHTTP2(x, d)
		case http2.Body:
			st := x.conn.streams[d.Stream]
			bodyHTTP(st.open[x.side], &st.scanned[x.side], d.Data)
			if st.open[x.side] != nil {
				st.at[x.side] = x.at
				st.body[x.side] += len(d.Data)
				x.conn.streams[d.Stream] = st
			}
		case http2.End:
			r.endHTTP2(x, d.Stream)
		case http2.Reset:
			r.resetHTTP2(x, d)
		}
	}
}

// headHTTP2 begins a message of a stream.
func (r *reading) headHTTP2(x *half, d *http2.Decoder) {
	m, c := &d.Message, x.conn
	if c.streams == nil {
		c.streams = map[uint32]h2Stream{}
	}
	if m.Kind == http2.Unclear {
		r.counts.bad(HTTP2, "header fields lost")
		return
	}
	if m.Kind == http2.Trailers || m.Kind == http2.Response && m.IsInterim() || m.Promised != 0 {
		return
	}
	if len(c.streams) >= maxStreams {
		r.forgetStreams(c)
	}
	st := c.streams[d.Stream]
	c.client = x.side
	if m.Kind == http2.Response {
		c.client = 1 - x.side
	}
	r.commitHTTP2(c, st.open[x.side])
	o := r.origin(x)
	s := r.slot(&o, HTTP2)
	s.key = join(c.link, uint64(d.Stream))
	s.number(StreamID, c.link, uint64(d.Stream))
	for i := range m.Fields {
		s.m.Bytes += len(m.Fields[i].Name) + len(m.Fields[i].Value)
	}
	if m.Kind == http2.Request {
		s.part = opens
		s.m.Name = "(path lost)"
		target := m.Path
		if target == nil && string(m.Method) == "CONNECT" { // it has no path (RFC 9113 section 8.5)
			target = m.Authority
		}
		if m.Method != nil && target != nil {
			s.m.Name = r.resource(s, m.Method, target)
			s.state(m.Method, target)
		}
	} else {
		status(r, s, m.Status)
	}
	st.open[x.side], st.at[x.side], st.scanned[x.side], st.body[x.side] = s, x.at, 0, 0
	c.streams[d.Stream] = st
	c.most = max(c.most, len(c.streams))
	c.open++
}

// commitHTTP2 delivers a message of a stream, if there is one.
func (r *reading) commitHTTP2(c *conn, s *slot) {
	if s != nil {
		c.open--
		r.commit(s)
	}
}

// endHTTP2 delivers the message of a stream. Before an answer it delivers a request whose end is
// lost: otherwise the request would wait until the connection ends.
func (r *reading) endHTTP2(x *half, stream uint32) {
	c := x.conn
	st, ok := c.streams[stream]
	if !ok {
		return
	}
	answered := x.side != c.client
	if answered {
		r.commitHTTP2(c, st.open[1-x.side])
	}
	if s := st.open[x.side]; s != nil {
		s.m.Time = max(st.at[x.side], x.at)
		s.written(st.body[x.side])
		r.commitHTTP2(c, s)
		st.open[x.side] = nil
	}
	if answered {
		delete(c.streams, stream)
		return
	}
	c.streams[stream] = st
}

// resetHTTP2 ends a stream in both directions.
func (r *reading) resetHTTP2(x *half, d *http2.Decoder) {
	c := x.conn
	if peer := c.halves[1-x.side].http2; peer != nil {
		peer.Forget(d.Stream)
	}
	st := c.streams[d.Stream]
	for _, s := range st.open {
		if s != nil {
			s.m.Failed, s.m.Cause = s.m.Kind == Answer, r.words.number(HTTP2, uint64(d.Code), func() string { return d.Code.String() })
			r.commitHTTP2(c, s)
		}
	}
	delete(c.streams, d.Stream)
}

// forgetStreams delivers all messages in progress of a connection, in the order of their
// streams, so that each run gives them the same IDs.
func (r *reading) forgetStreams(c *conn) {
	for _, stream := range slices.Sorted(maps.Keys(c.streams)) {
		for _, s := range c.streams[stream].open {
			r.commitHTTP2(c, s)
		}
	}
	clear(c.streams)
}

// closeHTTP2 ends a direction.
func (r *reading) closeHTTP2(x *half) {
	if x.http2 != nil && !x.lost {
		if err := x.http2.Close(); err != nil {
			r.counts.bad(HTTP2, reason(err))
		}
	}
	c := x.conn
	for _, stream := range slices.Sorted(maps.Keys(c.streams)) {
		st := c.streams[stream]
		r.commitHTTP2(c, st.open[x.side])
		st.open[x.side] = nil
		c.streams[stream] = st
	}
}

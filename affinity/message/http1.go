package message

import "vitrine/wire/http1"

// readHTTP1 reads messages of HTTP/1. A message is delivered at its end, when its body
// was looked through.
func (r *reading) readHTTP1(x *half, data []byte) (n int, err error) {
	d := &x.http1
	for {
		k, event, err := d.Next(data[n:])
		n += k
		if err != nil {
			return n, err
		}
		switch event {
		case http1.More:
			return n, nil
		case http1.Head:
			r.headHTTP(x, d)
		case http1.Body:
			bodyHTTP(x.slot, &x.scanned, d.Data)
			x.body += len(d.Data)
		case http1.End:
			r.endHTTP(x)
			if n == len(data) {
				return n, nil
			}
		case http1.Tunnel: // another protocol follows: perhaps HTTP/2
			r.retry(x.conn)
			return n, nil
		}
	}
}

// retry recognises the protocol of a connection anew.
func (r *reading) retry(c *conn) {
	c.protocol, c.tries = Unknown, 0
	for i := range c.halves {
		c.halves[i].begun, c.halves[i].lost = false, false
	}
}

// headHTTP begins a message.
func (r *reading) headHTTP(x *half, d *http1.Decoder) {
	m, c := &d.Message, x.conn
	if m.IsInterim() && m.Status != 101 {
		return
	}
	r.abandon(x)
	x.scanned, x.body = 0, 0
	if m.Request {
		c.client = x.side
	} else {
		c.client = 1 - x.side
	}
	o := r.origin(x)
	s := r.slot(&o, HTTP)
	s.m.Bytes = len(m.Octets)
	x.slot = s
	if m.Request {
		s.part, s.key = opens, join(c.link, c.requests)
		s.m.Name = r.resource(s, m.Method, m.Target)
		s.state(m.Method, m.Target)
		r.ask(c, s.m.Name, string(m.Method) == "HEAD" || string(m.Method) == "CONNECT")
		if string(m.Method) == "CONNECT" {
			c.names[(c.requests-1)%pending].head = false
		}
		return
	}
	s.m.Kind = Answer
	r.status(s, m.Status, "")
	if asked, number, ok := c.answer(); ok {
		s.part, s.key = only, join(c.link, number)
		r.status(s, m.Status, asked.name)
		if asked.head {
			d.Answer([]byte("HEAD"))
		}
	}
}

// status sets the name of an answer and whether it failed.
func (r *reading) status(s *slot, status int, request string) {
	s.m.Name = r.answerName(status, request)
	s.m.Failed = status >= 400 && status != 401 // a challenge asks for another round
	if status >= 400 {
		s.m.Cause = r.code(status)
	}
}

// ask notes a request, which the answer of the same number answers.
func (r *reading) ask(c *conn, name string, head bool) {
	if c.requests-c.answers >= pending {
		c.answers++ // the oldest is forgotten
	}
	c.names[c.requests%pending] = asked{name, head}
	c.requests++
}

// answer returns the request that the next answer answers. ok is false if there is none.
func (c *conn) answer() (a asked, number uint64, ok bool) {
	if c.answers == c.requests {
		return asked{}, 0, false
	}
	number = c.answers
	c.answers++
	return c.names[number%pending], number, true
}

// bodyHTTP looks through the next bytes of a body.
func bodyHTTP(s *slot, scanned *int, data []byte) {
	if s == nil {
		return
	}
	s.m.Bytes += len(data)
	if room := maxScan - *scanned; room > 0 {
		data = data[:min(room, len(data))]
		*scanned += len(data)
		s.scan(data)
	}
}

// endHTTP delivers a message.
func (r *reading) endHTTP(x *half) {
	s := x.slot
	if s == nil {
		return
	}
	x.slot = nil
	s.m.Time = x.at
	s.written(x.body)
	r.commit(s)
}

// written notes how many bytes a request writes to a store.
func (s *slot) written(n int) {
	for i := range s.m.Access {
		if s.m.Access[i].Write {
			s.m.Access[i].Bytes = n
		}
	}
}

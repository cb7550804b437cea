package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"vitrine/wire/sip"
)

// An arrival is a message that a device forwarded.
type arrival struct {
	port int // destination port
	data []byte
}

const (
	maxInFlight    = 32                     // messages in flight at once
	startTimeout   = 10 * time.Second       // time limit for a device to start
	forwardTimeout = 2 * time.Second        // time limit for a ready device to forward
	probeEvery     = 20 * time.Millisecond  // between two readiness probes
	quietTime      = 100 * time.Millisecond // after this, no more probes arrive
)

// A passage holds all sockets on both sides of a device.
type passage struct {
	key     func(data []byte) (string, error)
	sources map[int]*net.UDPConn
	sinks   []*net.UDPConn
	arrived chan arrival
}

// sipKey returns Call-ID and CSeq, which identify a SIP message within a corpus.
func sipKey(data []byte) (string, error) {
	var m sip.Message
	_, err := m.Parse(slices.Clone(data))
	return fmt.Sprintf("%s %d %s", m.CallID, m.Sequence, m.SequenceMethod), err
}

// pass waits until the device forwards. Then it sends the first messages of a plan and returns
// exactly one arrival for each, in the same order.
func (s *stage) pass(ctx context.Context, f floodPlan, first int) (all []arrival, err error) {
	messages, sources, sinks := f.messages[:first], f.sources, f.sinks
	p := &passage{key: f.key, sources: map[int]*net.UDPConn{}, arrived: make(chan arrival, 16*maxInFlight)}
	var readers sync.WaitGroup
	defer func() {
		for _, conn := range slices.AppendSeq(slices.Clone(p.sinks), maps.Values(p.sources)) {
			err = errors.Join(err, conn.Close())
		}
		readers.Wait()
	}()
	for i := range sources.count {
		if p.sources[sources.first+i], err = s.listen(sources.first + i); err != nil {
			delete(p.sources, sources.first+i)
			return nil, err
		}
	}
	for i := range sinks.count {
		conn, err := s.listen(sinks.first + i)
		if err != nil {
			return nil, err
		}
		p.sinks = append(p.sinks, conn)
		readers.Go(func() { p.read(conn, sinks.first+i) })
	}
	random := rand.New(rand.NewPCG(1, 1))
	if err := p.await(ctx, messages[0], random); err != nil {
		return nil, err
	}
	for group := range slices.Chunk(messages, maxInFlight) {
		got, err := p.group(ctx, group, random)
		if err != nil {
			return nil, err
		}
		all = append(all, got...)
	}
	return all, nil
}

func (p *passage) read(conn *net.UDPConn, port int) {
	data := make([]byte, 4096)
	for {
		n, err := conn.Read(data)
		if err != nil {
			return // closed
		}
		select {
		case p.arrived <- arrival{port, slices.Clone(data[:n])}:
		default: // too many arrivals: group will miss other messages and report it
		}
	}
}

func (p *passage) send(m message, random *rand.Rand) error {
	to := &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: devicePort}
	_, err := p.sources[m.source()].WriteToUDP(m.bytes(m.length(), "", random), to)
	return err
}

// await sends a message until it arrives, and then waits until no more copies
// arrive.
func (p *passage) await(ctx context.Context, m message, random *rand.Rand) error {
	late := time.After(startTimeout)
	for wait := probeEvery; ; {
		if wait == probeEvery {
			if err := p.send(m, random); err != nil {
				return err
			}
		}
		select {
		case <-p.arrived:
			wait = quietTime
		case <-time.After(wait):
			if wait == quietTime {
				return nil
			}
		case <-late:
			return fmt.Errorf("forwarded nothing in %v", startTimeout)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// group sends a few messages and returns one arrival for each, in the same order.
func (p *passage) group(ctx context.Context, messages []message, random *rand.Rand) ([]arrival, error) {
	index := map[string]int{}
	for i, m := range messages {
		key, err := p.key(m.bytes(m.length(), "", random))
		if err != nil {
			return nil, err
		}
		index[key] = i
		if err := p.send(m, random); err != nil {
			return nil, err
		}
	}
	all := make([]arrival, len(messages))
	late := time.After(forwardTimeout)
	for range messages {
		select {
		case a := <-p.arrived:
			key, err := p.key(a.data)
			if err != nil {
				return nil, fmt.Errorf("cannot parse an arrival: %w: %q", err, a.data)
			}
			i, ok := index[key]
			if !ok || all[i].data != nil {
				return nil, fmt.Errorf("unexpected or repeated arrival: %q", a.data)
			}
			all[i] = a
		case <-late:
			return nil, fmt.Errorf("some of %d messages did not arrive within %v", len(messages), forwardTimeout)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return all, nil
}

// vias returns the values of all Via headers of a message, from the top.
func vias(data []byte) (all []string, err error) {
	var m sip.Message
	if _, err := m.Parse(data); err != nil {
		return nil, err
	}
	for f := m.Fields(); f.Next(); {
		if f.Kind != sip.Via {
			continue
		}
		for first, rest := sip.CutElement(f.Value); len(first) > 0; first, rest = sip.CutElement(rest) {
			all = append(all, string(first))
		}
	}
	return all, nil
}

// checkProxied checks the arrivals of requests that were sent twice. The proxy must add its own
// Via on top, choose the same instance both times, and spread the requests over the instances.
func checkProxied(sent []message, first, again []arrival) error {
	share := map[int]int{}
	for i, a := range first {
		got, err := vias(slices.Clone(a.data))
		switch {
		case err != nil:
			return err
		case len(got) != 2:
			return fmt.Errorf("%d Via instead of 2 in %q", len(got), a.data)
		case viaPort(got[0]) != devicePort || viaPort(got[1]) != sent[i].source():
			return fmt.Errorf("the proxy's Via is not above the client's in %q", a.data)
		case again[i].port != a.port:
			return fmt.Errorf("the same request went to %d and then to %d: %q", a.port, again[i].port, a.data)
		}
		share[a.port]++
	}
	for i := range instances.count {
		if n := share[instances.first+i]; n < len(first)/instances.count/2 {
			return fmt.Errorf("instance %d got %d of %d: want about a quarter each", i+1, n, len(first))
		}
	}
	return nil
}

// viaPort returns the port of a Via. A Via without a port means 5060.
func viaPort(via string) int {
	hop, ok := sip.ParseViaHop([]byte(via))
	switch {
	case !ok:
		return 0
	case hop.Port == 0:
		return devicePort
	}
	return int(hop.Port)
}

// responses returns the instances' responses to the arrived requests.
func responses(arrived []arrival, random *rand.Rand) ([]message, error) {
	all := make([]message, len(arrived))
	for i, a := range arrived {
		m, err := response(a, random)
		if err != nil {
			return nil, err
		}
		all[i] = m
	}
	return alike(all, random), nil
}

func response(a arrival, random *rand.Rand) (sipMessage, error) {
	var m sip.Message
	if _, err := m.Parse(slices.Clone(a.data)); err != nil {
		return sipMessage{}, err
	}
	r := sipMessage{port: a.port, start: "SIP/2.0 200 OK"}
	method := string(m.SequenceMethod)
	if method == "REGISTER" && m.Authorization == nil {
		r.start = "SIP/2.0 401 Unauthorized"
	}
	add := func(long, compact string, value []byte, more string) {
		if random.IntN(3) == 0 && compact != "" {
			long = compact
		}
		r.lines = append(r.lines, long+": "+string(value)+more)
	}
	var top []string
	for f := m.Fields(); f.Next(); {
		switch f.Kind {
		case sip.Via:
			top = append(top, string(f.Value))
			add("Via", "v", f.Value, "")
		case sip.RecordRoute:
			add("Record-Route", "", f.Value, "")
		case sip.From:
			add("From", "f", f.Value, "")
		case sip.To:
			tag := ""
			if _, has := sip.Param(f.Value, "tag"); !has {
				tag = fmt.Sprintf(";tag=%08x", random.Uint32())
			}
			add("To", "t", f.Value, tag)
		case sip.CallID:
			add("Call-ID", "i", f.Value, "")
		case sip.CSeq:
			add("CSeq", "", f.Value, "")
		}
	}
	switch {
	case method == "INVITE":
		r.body = session
		r.lines = append(r.lines, "Content-Type: application/sdp")
		add("Contact", "m", []byte("<sip:97239287044@127.0.0.1>"), "")
	case r.start == "SIP/2.0 401 Unauthorized":
		add("WWW-Authenticate", "", []byte(`Digest realm="bench.test",nonce="1701af566be182070084c6f740706bb",opaque="1701a1351f70795",stale=false,algorithm=MD5`), "")
	}
	add("Content-Length", "l", fmt.Append(nil, len(r.body)), "")
	random.Shuffle(len(r.lines), func(i, j int) { r.lines[i], r.lines[j] = r.lines[j], r.lines[i] })
	for i, line := range r.lines { // Via headers keep their order in the shuffled lines
		if name := line[:2]; name == "v:" || name == "Vi" {
			r.lines[i], top = "Via: "+top[0], top[1:]
		}
	}
	return r, nil
}

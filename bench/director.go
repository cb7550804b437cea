package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"vitrine/wire/sip"
)

// A floodPlan is the load for a device.
type floodPlan struct {
	messages       []message
	key            func(data []byte) (string, error) // identifies a message
	sources, sinks ports
	corpus         string  // file
	most           float64 // the load tool's own ceiling, messages a second
}

// plan writes the corpus and measures the load tool's ceiling against a port
// that drops messages.
func (s *stage) plan(ctx context.Context, name string, f floodPlan, stamps bool) (floodPlan, error) {
	f.corpus = filepath.Join(s.dir, name)
	if err := writeCorpus(f.corpus, f.messages, f.sources, stamps, rand.New(rand.NewPCG(2, 2))); err != nil {
		return f, err
	}
	l, err := s.drive(ctx, f.sinks.first, f.sources, f.sinks, f.corpus)
	if err != nil {
		return f, err
	}
	all, err := l.send(tooMuch, rateTrial)
	f.most = all.sent / all.took.Seconds()
	return f, errors.Join(err, l.close())
}

// tooMuch is a rate beyond any load tool on this host, in messages per second.
const tooMuch = 20e6

// A rival is a device with its plan.
type rival struct {
	device
	floodPlan
	limited int       // number of searches that the load tool limited
	rates   []float64 // highest rate of each round, in messages per second
}

// compare measures the rivals' highest rates alternately.
func (s *stage) compare(ctx context.Context, rivals []*rival, progress io.Writer) error {
	sides := make([]side, len(rivals))
	for i, r := range rivals {
		sides[i] = func(ctx context.Context) (float64, error) {
			c, err := s.ceiling(ctx, r.device, r.floodPlan)
			if c.limited {
				r.limited++
			}
			return c.rate, err
		}
	}
	rates, err := runRounds(ctx, minRounds, sides, progress)
	if err != nil {
		return err
	}
	for i, r := range rivals {
		r.rates = rates[i]
	}
	return nil
}

// rateRow compares two rivals. If the load tool limited one of them in any
// round, the row has no ratio.
func rateRow(name, aim string, ours, theirs *rival) (Row, error) {
	row, err := Pairs{ours.rates, theirs.rates}.row(name, "messages/s", fmt.Sprintf("%s; the load tool alone sends %.3g/s", theirs.name, min(ours.most, theirs.most)), aim)
	if ours.limited+theirs.limited > 0 {
		row.Ratio, row.Spread, row.Holds = nil, nil, nil
		row.Reason = fmt.Sprintf("the load tool was the limit in %d and %d of %d searches", ours.limited, theirs.limited, row.Rounds)
	}
	return row, err
}

// directorSIP compares the highest rate of SIP requests through the director with the rates through
// Kamailio and a bare forwarder.
func directorSIP(ctx context.Context, s *stage, progress io.Writer) (rows []Row, err error) {
	version, err := kamailioVersion(ctx)
	if err != nil {
		return nil, err
	}
	f, err := s.requestPlan(ctx)
	if err != nil {
		return nil, err
	}
	ours, forwarder := &rival{device: director(instances), floodPlan: f}, &rival{device: bareForwarder(instances), floodPlan: f}
	peer, roomy := &rival{device: kamailio(version), floodPlan: f}, &rival{device: roomyKamailio(version), floodPlan: f}
	for _, r := range []*rival{ours, peer} {
		if err := s.prove(ctx, r.device, f); err != nil {
			return nil, err
		}
	}
	if err := s.compare(ctx, []*rival{ours, forwarder, peer, roomy}, progress); err != nil {
		return nil, err
	}
	for _, against := range []struct {
		name, aim string
		*rival
	}{
		{"director/sip/kamailio", ">= 12", peer},
		{"director/sip/kamailio/roomy", "", roomy},
		{"director/sip/forwarder", ">= 0.75", forwarder},
	} {
		row, err := rateRow(against.name, against.aim, ours, against.rival)
		if err != nil {
			return rows, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func (s *stage) requestPlan(ctx context.Context) (floodPlan, error) {
	all, err := s.requests(ctx)
	if err != nil {
		return floodPlan{}, err
	}
	return s.plan(ctx, "requests", floodPlan{messages: all, key: sipKey, sources: clients, sinks: instances}, false)
}

// requests returns the requests of the corpus. A request in a dialog has the Route that the
// director gave to the dialog's INVITE. The Route is signed, so only a running director can make
// it. Other devices ignore the Route.
func (s *stage) requests(ctx context.Context) ([]message, error) {
	var invites []message
	for _, m := range requests(rand.New(rand.NewPCG(3, 3)), nil) {
		if strings.HasPrefix(m.(sipMessage).start, "INVITE ") {
			invites = append(invites, m)
		}
	}
	routes := map[string]string{}
	f := floodPlan{messages: invites, key: sipKey, sources: clients, sinks: instances}
	err := s.with(ctx, director(instances), func() error {
		arrived, err := s.pass(ctx, f, len(invites))
		if err != nil {
			return err
		}
		for _, a := range arrived {
			id, route, err := routeOf(a.data)
			if err != nil {
				return err
			}
			routes[id] = route
		}
		return nil
	})
	return requests(rand.New(rand.NewPCG(3, 3)), routes), err
}

// routeOf returns the Call-ID of a forwarded INVITE, and the Route of the client's later requests.
// That Route is the Record-Route in reverse order (RFC 3261 section 12.1.2).
func routeOf(data []byte) (id, route string, err error) {
	var m sip.Message
	if _, err := m.Parse(data); err != nil {
		return "", "", err
	}
	var elements []string
	for f := m.Fields(); f.Next(); {
		for rest := f.Value; f.Kind == sip.RecordRoute && len(rest) > 0; {
			var element []byte
			element, rest = sip.CutElement(rest)
			elements = append(elements, string(element))
		}
	}
	if len(elements) != 2 {
		return "", "", fmt.Errorf("%d Record-Route entries instead of 2 in %q", len(elements), data)
	}
	slices.Reverse(elements)
	return string(m.CallID), strings.Join(elements, ", "), nil
}

// proofs is the number of requests that are checked before a device is measured.
const proofs = 2000

// prove sends requests through the device twice and checks them with checkProxied.
func (s *stage) prove(ctx context.Context, d device, f floodPlan) error {
	return s.with(ctx, d, func() error {
		first, err := s.pass(ctx, f, proofs)
		if err != nil {
			return err
		}
		again, err := s.pass(ctx, f, proofs)
		if err != nil {
			return err
		}
		return checkProxied(f.messages, first, again)
	})
}

// directorResponses compares the highest rates of responses. The responses answer the requests that
// the same proxy forwarded. They go from the instances to a thousand clients.
func directorResponses(ctx context.Context, s *stage, progress io.Writer) (rows []Row, err error) {
	version, err := kamailioVersion(ctx)
	if err != nil {
		return nil, err
	}
	ours, err := s.responder(ctx, "director", director(instances))
	if err != nil {
		return nil, err
	}
	peer, err := s.responder(ctx, "kamailio", kamailio(version))
	if err != nil {
		return nil, err
	}
	forwarder := &rival{device: bareForwarder(clients), floodPlan: ours.floodPlan}
	if err := s.compare(ctx, []*rival{ours, forwarder, peer}, progress); err != nil {
		return nil, err
	}
	row, err := rateRow("director/sip/responses/kamailio", ">= 12", ours, peer)
	if err != nil {
		return nil, err
	}
	other, err := rateRow("director/sip/responses/forwarder", ">= 0.75", ours, forwarder)
	return []Row{row, other}, err
}

// responder makes the device forward all requests except ACK. It returns the device with a load of
// the responses to them.
func (s *stage) responder(ctx context.Context, name string, d device) (*rival, error) {
	all, err := s.requests(ctx)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(m message) bool { return strings.HasPrefix(m.(sipMessage).start, "ACK ") })
	f := floodPlan{messages: all, key: sipKey, sources: clients, sinks: instances}
	var arrived []arrival
	err = s.with(ctx, d, func() (err error) {
		arrived, err = s.pass(ctx, f, len(f.messages))
		return err
	})
	if err != nil {
		return nil, err
	}
	back := floodPlan{key: sipKey, sources: instances, sinks: clients}
	if back.messages, err = responses(arrived, rand.New(rand.NewPCG(4, 4))); err != nil {
		return nil, err
	}
	if back, err = s.plan(ctx, "responses-"+name, back, false); err != nil {
		return nil, err
	}
	return &rival{device: d, floodPlan: back}, s.with(ctx, d, func() error { return s.proveResponses(ctx, back, f) })
}

// proveResponses checks that each response reaches the client that sent the
// request, without the device's Via.
func (s *stage) proveResponses(ctx context.Context, back, forth floodPlan) error {
	arrived, err := s.pass(ctx, back, proofs)
	if err != nil {
		return err
	}
	clientOf := map[string]int{}
	random := rand.New(rand.NewPCG(1, 1))
	for _, m := range forth.messages {
		key, err := sipKey(m.bytes(m.length(), "", random))
		if err != nil {
			return err
		}
		clientOf[key] = m.source()
	}
	for _, a := range arrived {
		got, err := vias(slices.Clone(a.data))
		if err != nil {
			return err
		}
		key, err := sipKey(a.data)
		if err != nil {
			return err
		}
		if want := clientOf[key]; len(got) != 1 || viaPort(got[0]) != want || a.port != want {
			return fmt.Errorf("client %d gets a wrong response, at port %d: %q", want, a.port, a.data)
		}
	}
	return nil
}

const (
	latencyRounds = 31
	latencyWarm   = time.Second
	latencyShare  = 0.5 // share of the director's highest rate
	latencyTries  = 20
	maxLateness   = time.Millisecond // allowed lateness of the load tool; messages that catch up would queue behind each other
	p99           = 2                // index into flood.latency
	samples       = 5_000            // per trial: fifty beyond the 99th percentile
)

// directorLatency compares the 99th percentile of the time that requests take through a device.
// Requests are sent one by one with random gaps, at half of the director's highest rate.
func directorLatency(ctx context.Context, s *stage, progress io.Writer) (rows []Row, err error) {
	f, err := s.requestPlan(ctx)
	if err != nil {
		return nil, err
	}
	top := make([]float64, 3)
	for i := range top {
		c, err := s.ceiling(ctx, director(instances), f)
		if err != nil {
			return nil, err
		}
		top[i] = c.rate
	}
	rate := latencyShare * median(top)
	s.realtime = true // otherwise the result shows the longest time slices of other programs
	stamped, err := s.plan(ctx, "stamped", f, true)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(progress, "  at %.0f of %.0f messages a second; the load tool alone sends %.0f one by one\n", rate, median(top), stamped.most)
	sides := make([]side, 2)
	for i, d := range []device{director(instances), bareForwarder(instances)} {
		sides[i] = func(ctx context.Context) (float64, error) { return s.latency(ctx, d, stamped, rate) }
	}
	took, err := runRounds(ctx, latencyRounds, sides, progress)
	if err != nil {
		return nil, err
	}
	against := fmt.Sprintf("%s, both at %.0f messages/s and first on their core (SCHED_FIFO)", bareForwarder(instances).name, rate)
	row, err := Pairs{took[0], took[1]}.row("director/sip/latency", "us, 99th percentile", against, "<= 2")
	return []Row{row}, err
}

// latency returns the 99th percentile at a rate, in us.
func (s *stage) latency(ctx context.Context, d device, f floodPlan, rate float64) (us float64, err error) {
	err = s.under(ctx, d, f, func(l *udpLoad) (err error) {
		us, err = l.calmLatency(rate)
		return err
	})
	return us, err
}

// calmLatency repeats the measurement until the load tool keeps to the rate and
// the loss is within lossAllowed.
func (l *udpLoad) calmLatency(rate float64) (us float64, err error) {
	f, err := l.sample(rate, latencyWarm) // warms up pages and caches
	if err != nil {
		return 0, err
	}
	lasting := time.Duration(samples * sampled / rate * float64(time.Second))
	for range latencyTries {
		if f, err = l.sample(rate, lasting); err != nil {
			return 0, err
		}
		if !f.behind(lasting) && f.late <= maxLateness && f.loss() <= lossAllowed && f.samples >= samples/2 {
			return float64(f.latency[p99]) / float64(time.Microsecond), nil
		}
	}
	return 0, fmt.Errorf("at %.0f messages a second in %d tries: %.0f of %.0f sent in %v, up to %v late, %.0f arrived, %d samples",
		rate, latencyTries, f.sent, f.wanted, f.took, f.late, f.arrived, f.samples)
}

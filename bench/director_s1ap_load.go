package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/sync/errgroup"

	"vitrine/wire/identity"
	"vitrine/wire/s1ap"
	"vitrine/wire/s1ap/frame"
)

// playS1APCommand is the first argument of this program when it runs as the eNodeBs and
// instances around a device.
const playS1APCommand = "play-s1ap"

// playS1AP plays a plan. Its arguments are PLAN DIRECTOR DURATION. It prints "ready" after a
// warm-up, waits for a line, and plays for the duration. Then it prints the number of messages, the
// time in seconds, and the memory allocations of the director (0 for another device).
func playS1AP(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) != 3 {
		return errors.New("want PLAN DIRECTOR DURATION")
	}
	director := args[1] == strconv.FormatBool(true)
	lasting, err := time.ParseDuration(args[2])
	if err != nil {
		return err
	}
	plan, err := readS1APPlan(args[0])
	if err != nil {
		return err
	}
	all, err := connectS1AP(ctx, plan, director)
	defer func() {
		for _, p := range all {
			p.close()
		}
	}()
	if err != nil {
		return err
	}
	if _, err := playAll(all, 0); err != nil { // warms up buffers and maps
		return err
	}
	for _, p := range all {
		p.compare = false // the warm-up has compared everything
	}
	fmt.Fprintln(out, "ready")
	if _, err := bufio.NewReader(in).ReadString('\n'); err != nil {
		return err
	}
	before, err := allocations(ctx, director)
	if err != nil {
		return err
	}
	began := time.Now()
	messages, err := playAll(all, lasting)
	took := time.Since(began)
	if err != nil {
		return err
	}
	after, err := allocations(ctx, director)
	fmt.Fprintf(out, "%d %.6f %.0f\n", messages, took.Seconds(), after-before)
	return err
}

func readS1APPlan(file string) (p s1apPlan, err error) {
	f, err := os.Open(file)
	if err != nil {
		return p, err
	}
	defer f.Close()
	return p, gob.NewDecoder(f).Decode(&p)
}

// allocations returns the number of memory allocations of the director since its start, or 0 for
// another device.
func allocations(ctx context.Context, director bool) (n float64, err error) {
	if !director {
		return 0, nil
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/metrics", controlPort), nil)
	if err != nil {
		return 0, err
	}
	res, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(res.Body)
	if err != nil {
		return 0, fmt.Errorf("read the director's metrics: %w", err)
	}
	const name = "go_memstats_mallocs_total"
	metrics := families[name].GetMetric()
	if len(metrics) != 1 {
		return 0, errors.New("the director's metrics have no " + name)
	}
	return metrics[0].GetCounter().GetValue(), nil
}

// An s1apPlayer is an eNodeB and the instances' ends of its associations.
type s1apPlayer struct {
	plan      s1apENodeB
	compare   bool // whether instances compare what they receive with the plan
	enodeb    net.Conn
	instances []net.Conn
	buffer    []byte
}

// connections returns the eNodeB's and the instances' connections.
func (p *s1apPlayer) connections() (all []net.Conn) {
	if p.enodeb != nil {
		all = append(all, p.enodeb)
	}
	return append(all, p.instances...)
}

func (p *s1apPlayer) close() {
	for _, c := range p.connections() {
		_ = c.Close() // an error does not matter, because the device ends too
	}
}

// connectS1AP connects one eNodeB after the other, so that it knows to which eNodeB an accepted
// association belongs. With an error, it returns the players so far, so that the caller can close
// them.
func connectS1AP(ctx context.Context, plan s1apPlan, director bool) (all []*s1apPlayer, err error) {
	var listeners []*net.TCPListener
	for i := range instances.count {
		l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: instances.first + i})
		if err != nil {
			return nil, err
		}
		defer l.Close()
		listeners = append(listeners, l)
	}
	for _, e := range plan.ENodeBs {
		for _, l := range listeners {
			if err := l.SetDeadline(time.Now().Add(startTimeout)); err != nil {
				return all, err
			}
		}
		p := &s1apPlayer{plan: e, compare: true}
		all = append(all, p)
		if p.enodeb, err = dialDevice(ctx); err != nil {
			return all, err
		}
		if director {
			if _, err := p.enodeb.Write(frame.Append(nil, frame.Common, e.Setup)); err != nil {
				return all, err
			}
		}
		for _, l := range listeners {
			c, err := l.Accept()
			if err != nil {
				return all, err
			}
			p.instances = append(p.instances, c)
		}
		if director {
			if err := p.setUp(); err != nil {
				return all, fmt.Errorf("set up an eNodeB: %w", err)
			}
		}
		p.buffer = make([]byte, e.longest())
	}
	return all, nil
}

// dialDevice connects to the device, which may not listen yet.
func dialDevice(ctx context.Context) (c net.Conn, err error) {
	var d net.Dialer
	for deadline := time.Now().Add(startTimeout); time.Now().Before(deadline); time.Sleep(probeInterval) {
		if c, err = d.DialContext(ctx, "tcp4", fmt.Sprintf("127.0.0.1:%d", devicePort)); err == nil || ctx.Err() != nil {
			return c, err
		}
	}
	return nil, err
}

// setUp accepts the S1 Setup of the eNodeB at all instances and waits for the director's answer to
// the eNodeB.
func (p *s1apPlayer) setUp() error {
	home, _ := identity.MakePLMN("001", "01")
	want := frame.Append(nil, frame.Common, p.plan.Setup)
	for i, c := range p.instances {
		got := make([]byte, len(want))
		if _, err := io.ReadFull(c, got); err != nil {
			return err
		}
		if !bytes.Equal(got, want) {
			return fmt.Errorf("instance %d gets % x", i+1, got)
		}
		b := s1ap.AppendHeader(nil, s1ap.Successful, s1ap.S1Setup, s1ap.Reject)
		b = s1ap.AppendServed(b, s1ap.Reject, home, 1, uint8(i+1))
		start := len(b)
		b = append(s1ap.BeginElement(b, s1ap.RelativeCapacity, s1ap.Ignore), 255)
		if _, err := c.Write(frame.Append(nil, frame.Common, s1ap.End(s1ap.EndElement(b, start), 0))); err != nil {
			return err
		}
	}
	head := make([]byte, frame.HeaderSize)
	if _, err := io.ReadFull(p.enodeb, head); err != nil {
		return err
	}
	message := make([]byte, int(head[2])<<8|int(head[3])) // the low half of the length: a message has fewer than 64 KiB
	if _, err := io.ReadFull(p.enodeb, message); err != nil {
		return err
	}
	var m s1ap.Message
	if err := m.Parse(message); err != nil || m.Procedure != s1ap.S1Setup || m.Kind != s1ap.Successful {
		return fmt.Errorf("the director answers kind %d of %v: %w", m.Kind, m.Procedure, err)
	}
	return nil
}

// playTimeout is how long playAll may take beyond its duration. An idle host needs much less.
const playTimeout = time.Minute

// playAll plays the plans of all eNodeBs at the same time: once, and again until the duration is
// over. It returns the number of messages.
func playAll(all []*s1apPlayer, lasting time.Duration) (messages int, err error) {
	until := time.Now().Add(lasting)
	for _, p := range all {
		for _, c := range p.connections() {
			if err := c.SetDeadline(until.Add(playTimeout)); err != nil {
				return 0, err
			}
		}
	}
	counts := make([]int, len(all))
	var playing errgroup.Group
	for i, p := range all {
		playing.Go(func() error {
			for first := true; first || time.Now().Before(until); first = false {
				for _, s := range p.plan.Steps {
					if !first && !time.Now().Before(until) {
						return nil
					}
					if err := p.step(&s); err != nil {
						p.close() // otherwise the peers would wait forever
						return err
					}
					counts[i] += s.Messages
				}
			}
			return nil
		})
	}
	err = playing.Wait()
	for _, n := range counts {
		messages += n
	}
	return messages, err
}

// step sends the messages of a step and waits until all have arrived.
func (p *s1apPlayer) step(s *s1apStep) error {
	if !s.Up {
		total := 0
		for i, c := range p.instances {
			if _, err := c.Write(s.At[i]); err != nil {
				return err
			}
			total += len(s.At[i])
		}
		_, err := io.ReadFull(p.enodeb, p.buffer[:total])
		return err
	}
	if _, err := p.enodeb.Write(s.Sent); err != nil {
		return err
	}
	for i, c := range p.instances {
		got := p.buffer[:len(s.At[i])]
		if _, err := io.ReadFull(c, got); err != nil {
			return fmt.Errorf("instance %d received nothing: %w", i+1, err)
		}
		if p.compare && !bytes.Equal(got, s.At[i]) {
			return fmt.Errorf("instance %d received messages that differ from the plan", i+1)
		}
	}
	return nil
}

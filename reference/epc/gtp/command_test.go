package gtp_test

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vitrine/reference/epc/gtp"
	"vitrine/wire/gtpc"
)

// TestCommandsEndWithTheirRequest has a peer answer a command, after it came again, with
// the request that it triggers, twice. The command ends, and the request is handled once.
func TestCommandsEndWithTheirRequest(t *testing.T) {
	const origin = gtpc.CommandSequence | 77
	registry, handled := prometheus.NewRegistry(), make(chan uint32, 4)
	e := start(t, gtp.Config{T3: 50 * time.Millisecond, N3: 100, Registry: registry, Handle: func(_ context.Context, r *gtp.Request) {
		handled <- r.Origin
		r.Answer(1, &gtpc.Answer{Type: gtpc.CreateBearerResponse, Result: gtpc.Result{Cause: gtpc.RequestAccepted}})
	}})
	p := newPeer(t)
	done := make(chan gtpc.Type, 4)
	e.Command(t.Context(), p.addr(), 5, origin, &gtpc.BearerResource{Linked: 5, PTI: 1}, func(m *gtpc.Message, err error) {
		if err != nil {
			t.Error(err)
			return
		}
		done <- m.Type
	})
	_, first := p.read()
	_, again := p.read()
	if first.Type != gtpc.BearerResourceCommand || first.Sequence&gtpc.CommandSequence == 0 || again.Sequence != first.Sequence {
		t.Fatalf("got %+v, then %+v", first, again)
	}
	request := (&gtpc.CreateBearer{PTI: 1, Linked: 5, Bearers: []gtpc.Bearer{{}}}).Append(nil, 6, first.Sequence)
	for range 2 {
		p.send(request, e)
		for { // commands that were under way may come before
			if _, m := p.read(); m.Type == gtpc.CreateBearerResponse {
				if m.Sequence != first.Sequence {
					t.Errorf("answer: got sequence number %#x", m.Sequence)
				}
				break
			}
		}
	}
	if got := <-done; got != gtpc.CreateBearerRequest {
		t.Errorf("command: got %v", got)
	}
	if got := <-handled; got != origin {
		t.Errorf("got origin %#x", got)
	}
	if len(handled) != 0 || len(done) != 0 || value(t, registry, "gtpc_duplicates_total", "") != 1 {
		t.Error("the request was handled twice")
	}
}

// TestTriggeredRequestsHaveTheNumberOfTheirCommand sends one, and another with the same
// number before the answer.
func TestTriggeredRequestsHaveTheNumberOfTheirCommand(t *testing.T) {
	const sequence = gtpc.CommandSequence | 5
	e := start(t, gtp.Config{Handle: func(context.Context, *gtp.Request) {}})
	p := newPeer(t)
	ended := make(chan error, 1)
	var answer gtpc.Answer
	go func() {
		ended <- e.DoTriggered(t.Context(), p.addr(), 1, sequence, &gtpc.DeleteBearer{Bearers: []uint8{6}}, &answer)
	}()
	_, m := p.read()
	if m.Type != gtpc.DeleteBearerRequest || m.Sequence != sequence {
		t.Errorf("%+v", m)
	}
	var other gtpc.Answer
	if err := e.DoTriggered(t.Context(), p.addr(), 1, sequence, &gtpc.DeleteBearer{Bearers: []uint8{7}}, &other); err == nil {
		t.Error("a sequence number was used twice at the same time")
	}
	p.send((&gtpc.Answer{Type: gtpc.DeleteBearerResponse, Result: gtpc.Result{Cause: gtpc.RequestAccepted}}).Append(nil, 1, sequence), e)
	if err := <-ended; err != nil || answer.Result.Cause != gtpc.RequestAccepted {
		t.Errorf("%+v, %v", answer, err)
	}
}

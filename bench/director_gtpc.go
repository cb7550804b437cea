package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"

	steer "vitrine/director/gtpc"
	"vitrine/wire/gtpc"
	"vitrine/wire/gtpc/gtpctest"
)

// gtpcNumber is the aggregate type's number in TEIDs.
const gtpcNumber = 1

// A gtpcMessage is a GTPv2-C message, which is never padded.
type gtpcMessage struct {
	port int
	data []byte
}

func (m gtpcMessage) source() int { return m.port }

func (m gtpcMessage) length() int { return len(m.data) }

func (m gtpcMessage) bytes(int, string, *rand.Rand) []byte { return m.data }

// gtpcRequests returns the requests of callIDs sessions, six per session:
// gtpctest.Mix.
func gtpcRequests() []message {
	mix := gtpctest.NewMix(gtpctest.Config{Sessions: callIDs, TEID: func(session uint32) uint32 {
		prefix, _ := steer.PrefixOf(gtpcNumber, uint16(session)%uint16(instances.count)+1)
		return prefix.SessionTEID(uint16(session), session>>12)
	}})
	all := make([]message, callIDs*gtpctest.Kinds)
	for i := range all {
		all[i] = gtpcMessage{clients.first + i/burstSize%clients.count, mix.Append(nil)}
	}
	return all
}

// gtpcKey returns type, TEID and IMSI. They identify a message among those in flight.
func gtpcKey(data []byte) (string, error) {
	var m gtpc.Message
	if _, err := m.Parse(data); err != nil {
		return "", err
	}
	imsi, _ := m.Find(gtpc.IMSI, 0)
	return fmt.Sprintf("%s %x %x", m.Type, m.TEID, imsi), nil
}

// directorGTPC compares the highest rate of GTPv2-C requests through the director with that through
// a bare forwarder.
func directorGTPC(ctx context.Context, s *stage, progress io.Writer) (rows []Row, err error) {
	f, err := s.plan(ctx, "gtpc", floodPlan{messages: gtpcRequests(), key: gtpcKey, sources: clients, sinks: instances}, false)
	if err != nil {
		return nil, err
	}
	ours, forwarder := &rival{device: gtpcDirector(instances), floodPlan: f}, &rival{device: bareForwarder(instances), floodPlan: f}
	if err := s.with(ctx, ours.device, func() error { return s.proveGTPC(ctx, f) }); err != nil {
		return nil, err
	}
	if err := s.compare(ctx, []*rival{ours, forwarder}, progress); err != nil {
		return nil, err
	}
	row, err := rateRow("director/gtpc", ">= 0.8", ours, forwarder)
	return []Row{row}, err
}

// proveGTPC checks that a message with a TEID goes to the instance that
// assigned the TEID, and that the other messages are shared among the
// instances.
func (s *stage) proveGTPC(ctx context.Context, f floodPlan) error {
	arrived, err := s.pass(ctx, f, proofs)
	if err != nil {
		return err
	}
	begun := map[int]int{}
	for _, a := range arrived {
		var m gtpc.Message
		if _, err := m.Parse(a.data); err != nil {
			return err
		}
		if m.TEID == 0 {
			begun[a.port]++
			continue
		}
		id := uint16(a.port - instances.first + 1)
		if prefix, ok := steer.PrefixOf(gtpcNumber, id); !ok || m.TEID&prefix.TEID != prefix.TEID {
			return fmt.Errorf("%s for TEID %#x went to instance %d", m.Type, m.TEID, id)
		}
	}
	if len(begun) != instances.count {
		return fmt.Errorf("sessions began at %d of %d instances", len(begun), instances.count)
	}
	return nil
}

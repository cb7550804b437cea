package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"vitrine/wire/s1ap"
	"vitrine/wire/s1ap/frame"
)

// TestMain runs a helper process of a bench instead of the tests if the arguments ask for one.
func TestMain(m *testing.M) {
	is, err := part(context.Background(), os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if !is {
		os.Exit(m.Run())
	}
}

// TestS1APPlanIsTheGeneratorsMix checks the number of messages of each eNodeB's calls. All UEs must
// have different identifiers.
func TestS1APPlanIsTheGeneratorsMix(t *testing.T) {
	plan, err := newS1APPlan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const ofCalls = 6*6 + 2*4 + 11 + 4 // service requests, tracking area updates, an attach, a detach
	given := map[uint32]bool{}
	for n, e := range plan.ENodeBs {
		messages, begun := 0, 0
		for _, s := range e.Steps {
			messages += s.Messages
			for rest := s.Sent; len(rest) > 0; {
				var message []byte
				if message, rest, err = frame.Cut(rest); err != nil || message == nil {
					t.Fatalf("% x: %v", rest, err)
				}
				var m s1ap.Message
				if err := m.Parse(message); err != nil || m.Check() != nil {
					t.Fatalf("% x: %v", message, err)
				}
				if m.Procedure == s1ap.InitialUEMessage {
					begun++
				}
				if v, ok := m.Find(s1ap.MMEUEID); ok {
					id, _ := s1ap.ParseMMEUEID(v)
					given[id] = true
				}
			}
		}
		if messages != ofCalls*s1apUEs || begun != len(s1apMix)*s1apUEs {
			t.Errorf("eNodeB %d: %d messages, %d connections, want %d and %d", n, messages, begun, ofCalls*s1apUEs, len(s1apMix)*s1apUEs)
		}
	}
	if len(plan.ENodeBs) != s1apENodeBs || len(given) != s1apENodeBs*s1apUEs {
		t.Errorf("%d eNodeBs, %d MME UE S1AP IDs", len(plan.ENodeBs), len(given))
	}
}

// TestFramesReachTheirInstancesInNetns plays the plan through the bare forwarder. In the warm-up,
// the instances compare what they receive with the plan.
func TestFramesReachTheirInstancesInNetns(t *testing.T) {
	s := testStage(t)
	plan, err := newS1APPlan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "plan")
	if err := plan.write(file); err != nil {
		t.Fatal(err)
	}
	forwarder, err := s.framesForwarder(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.passS1AP(t.Context(), forwarder, file, false)
	if err != nil {
		t.Fatal(err)
	}
	if r.messages < s1apENodeBs*s1apUEs || r.cpu <= 0 || r.took <= 0 {
		t.Errorf("%+v", r)
	}
}

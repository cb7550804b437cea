package fabrictest

import (
	"maps"
	"testing"

	"vitrine/fabric"
	"vitrine/fabric/mirror/mirrortest"
	"vitrine/internal/runstate"
)

// Mirrors checks a mirror from one instance to another. The listener must receive each question to
// the mirrored instance, and each answer.
func Mirrors(t *testing.T, f fabric.Fabric, run *runstate.Run) {
	t.Helper()
	mirrorer, ok := f.(fabric.Mirrorer)
	if !ok {
		t.Fatalf("%T cannot mirror", f)
	}
	bench := NewBench(t, f, run)
	var places []mirrortest.Place
	for _, name := range []string{"bono-1", "sprout-1", "probe-1"} {
		in := bench.Attach(name)
		places = append(places, mirrortest.Place{NetNS: in.place, Addr: in.Addr})
	}
	client, server, listener := places[0], places[1], places[2]
	if err := mirrorer.Mirror(t.Context(), "sprout-1", "nobody"); err == nil {
		t.Error("mirrored to an instance that is not attached")
	}
	if err := mirrorer.Mirror(t.Context(), "sprout-1", "probe-1"); err != nil {
		t.Fatal(err)
	}
	server.Serve(t)
	hear := listener.Hear(t)
	if answered := client.Ask(t, server, 1, 64); answered != 1 {
		t.Error("the question was not answered")
	}
	if heard := mirrortest.Heard(hear, 2); !maps.Equal(heard, mirrortest.Messages(1)) {
		t.Errorf("the listener received %v, want the question and the answer", heard)
	}
}

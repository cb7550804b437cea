package etcd

import (
	"sync/atomic"
	"testing"

	"vitrine/store"
)

// TestQueuesTogether checks that many slow receivers together hold few bytes, and that a receiver that takes its
// events at once then still gets them.
func TestQueuesTogether(t *testing.T) {
	var all atomic.Int64
	open := func() *queue {
		return &queue{events: make(chan *store.Event, 1024), room: 16 << 20, all: &all}
	}
	large := &store.Event{Record: store.Record{Value: make([]byte, 1<<20)}}
	const slow = 64
	held := 0
	for range slow {
		q := open()
		for q.put(large) {
		}
		if len(q.events) == 0 {
			t.Error("a queue took no event")
		}
		held += len(q.events)
	}
	if held > allBytes>>20+slow {
		t.Errorf("%d slow receivers hold %d MiB, want at most %d and one each", slow, held, allBytes>>20)
	}
	quick := open()
	for range 100 {
		if !quick.put(large) {
			t.Fatal("a receiver without other events got no large event")
		}
		quick.add(-int64((<-quick.events).Record.Held()))
	}
	for range 10 {
		if !quick.put(&store.Event{}) {
			t.Fatal("a receiver with few bytes got no small event")
		}
	}
}

package storetest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"

	"vitrine/store"
)

// testCounter increments a counter by compare-and-set. No increment may be lost.
func testCounter(t *testing.T, s *suite) {
	const workers, each = 8, 25
	s.write(t, store.Op{Action: store.Put, Name: "n", Value: make([]byte, 8)})
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for range each {
				if err := increment(t.Context(), s.Engine); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if r, err := s.get(t, "n"); err != nil || binary.BigEndian.Uint64(r.Value) != workers*each {
		t.Errorf("%d increments gave %v, %v", workers*each, r.Value, err)
	}
}

func increment(ctx context.Context, e store.Engine) error {
	var r store.Record
	for {
		if err := e.Get(ctx, store.Key{Space: "s", Name: "n"}, &r); err != nil {
			return err
		}
		value := binary.BigEndian.AppendUint64(nil, binary.BigEndian.Uint64(r.Value)+1)
		err := e.Write(ctx, "s", store.Op{Action: store.Put, Name: "n", Value: value, If: store.Condition{Version: r.Version}})
		if _, ok := errors.AsType[*store.Conflict](err); !ok {
			return err
		}
	}
}

// testWholeBatches writes two records together. No reader may see only one of the two changes.
func testWholeBatches(t *testing.T, s *suite) {
	ctx, cancel := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	defer writers.Wait()
	defer cancel()
	pair := func(value string) error {
		return s.Write(t.Context(), "s",
			store.Op{Action: store.Put, Name: "a", Value: []byte(value), Tags: tags("t", value)},
			store.Op{Action: store.Put, Name: "b", Value: []byte(value), Tags: tags("t", value)})
	}
	if err := pair("first"); err != nil {
		t.Fatal(err)
	}
	for w := range 3 {
		writers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if err := pair(fmt.Sprint(w, ".", i)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for i := range 200 {
		q := store.Query{Space: "s"}
		if i%2 == 1 {
			q.Match = &store.Match{Tag: "t", Op: store.GreaterOrEqual}
		}
		var values []string
		for r, err := range s.Scan(t.Context(), q) {
			if err != nil {
				t.Fatal(err)
			}
			values = append(values, string(r.Value))
		}
		if len(values) != 2 || values[0] != values[1] {
			t.Fatalf("scan %d saw %q", i, values)
		}
	}
}

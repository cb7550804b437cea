package storetest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"vitrine/store"
)

// testCounter: increments by compare-and-set, none of which may be lost.
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
		var conflict *store.Conflict
		if !errors.As(err, &conflict) {
			return err
		}
	}
}

// testWholeBatches: two records always written together are never seen apart.
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

// A registerOp is one operation on one record, for porcupine.
type registerOp struct {
	name   string
	action store.Action // 0: get
	value  string       // of a put
	expect string       // compare-and-set: only over this value; "": always
}

type registerResult struct {
	value   string // of a get; "": none
	applied bool
	unknown bool // no answer: done or not
}

// register is a record as one sees it from outside: its value, "" for none.
func register() porcupine.Model {
	return porcupine.Model{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			by := map[string][]porcupine.Operation{}
			for _, o := range history {
				name := o.Input.(registerOp).name
				by[name] = append(by[name], o)
			}
			var parts [][]porcupine.Operation
			for _, p := range by {
				parts = append(parts, p)
			}
			return parts
		},
		Init: func() any { return "" },
		Step: func(state, input, output any) (bool, any) {
			in, out, now := input.(registerOp), output.(registerResult), state.(string)
			if in.action == 0 {
				return out.unknown || out.value == now, now
			}
			if out.unknown {
				// Asked only without a condition: taken as done, at some time up to the end.
				return true, in.value
			}
			if in.expect != "" && in.expect != now {
				return !out.applied, now
			}
			return out.applied, in.value
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
	}
}

func testLinearizable(t *testing.T, s *suite) {
	Linearizable(t, s.Engine, 8, 150)
}

// Linearizable drives the engine by so many workers, each with so many
// operations on a handful of records, and has porcupine look for an order of them
// that one record after another could have seen.
func Linearizable(t *testing.T, e store.Engine, workers, each int) {
	t.Helper()
	var mu sync.Mutex
	var history []porcupine.Operation
	began := time.Now()
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(w), 1))
			for i := range each {
				in := randomOp(random, fmt.Sprintf("%d.%d", w, i))
				call := time.Since(began)
				out, err := perform(t.Context(), e, &in)
				if err != nil {
					t.Errorf("%+v: %v", in, err)
					return
				}
				o := porcupine.Operation{ClientId: w, Input: in, Call: int64(call), Output: out, Return: int64(time.Since(began))}
				mu.Lock()
				history = append(history, o)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	result, _ := porcupine.CheckOperationsVerbose(register(), history, time.Minute)
	if result != porcupine.Ok {
		t.Errorf("%d operations: %s: no order of them explains what was seen", len(history), result)
	}
}

func randomOp(random *rand.Rand, value string) registerOp {
	in := registerOp{name: fmt.Sprint("k", random.IntN(4))}
	switch n := random.IntN(10); {
	case n < 4: // get
	case n < 7:
		in.action, in.value = store.Put, value
	case n < 9:
		in.action, in.value, in.expect = store.Put, value, "?" // what a get finds
	default:
		in.action = store.Delete
	}
	return in
}

// perform does one operation. A compare-and-set reads first, and is about the
// value it read; in is made to say which.
func perform(ctx context.Context, e store.Engine, in *registerOp) (registerResult, error) {
	var r store.Record
	key := store.Key{Space: "s", Name: in.name}
	if in.action == 0 || in.expect != "" {
		err := e.Get(ctx, key, &r)
		none := errors.Is(err, store.ErrNotFound)
		if err != nil && !none {
			return registerResult{}, err
		}
		if none || in.action == 0 {
			*in = registerOp{name: in.name}
			return registerResult{value: string(r.Value)}, nil
		}
		in.expect = string(r.Value)
	}
	o := store.Op{Action: in.action, Name: in.name, Value: []byte(in.value)}
	if in.expect != "" {
		o.If.Version = r.Version
	}
	err := e.Write(ctx, "s", o)
	var conflict *store.Conflict
	if errors.As(err, &conflict) {
		return registerResult{}, nil
	}
	return registerResult{applied: err == nil}, err
}

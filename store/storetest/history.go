package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"vitrine/store"
)

// A registerOp is one operation on one record, for porcupine.
type registerOp struct {
	name   string
	action store.Action // 0: get
	value  string       // value of a put
	expect string       // compare-and-set: the value to replace; "": unconditional
}

type registerResult struct {
	value   string // value that a get found; "": no record
	applied bool
	unknown bool // no answer: the operation took effect at some time after the call, or never
}

// register returns the model of a record: its value, "" for none.
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
			holds := in.expect == "" || in.expect == now
			switch {
			case in.action == 0:
				return out.value == now, now
			case out.unknown && !holds:
				return true, now
			case out.unknown: // an operation that never took effect may come last, where no reader sees it
				return true, in.value
			case !holds:
				return !out.applied, now
			}
			return out.applied, in.value
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
	}
}

// A History holds the operations of concurrent workers on a few records.
type History struct {
	mu         sync.Mutex
	operations []porcupine.Operation
	// Unanswered counts the writes with an unknown outcome.
	Unanswered int
}

func (h *History) add(o porcupine.Operation, unknown bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.operations = append(h.operations, o)
	if unknown {
		h.Unanswered++
	}
}

// Explained reports whether the history is linearizable: some order of the operations, each at one
// instant between its call and its answer, explains all results.
func (h *History) Explained() bool {
	result, _ := porcupine.CheckOperationsVerbose(register(), h.operations, time.Minute)
	return result == porcupine.Ok
}

func (h *History) String() string {
	return fmt.Sprintf("%d operations, %d of them unanswered", len(h.operations), h.Unanswered)
}

// A Drive runs a load on an engine and records a History.
type Drive struct {
	Engine  store.Engine
	Workers int
	Each    int // operations of each worker
	// Disturb, if not nil, is called once, after a third of the operations. Operations may fail
	// after it.
	Disturb func()
}

// Run drives the engine. It returns an error if an undisturbed engine fails, or if a disturbed one
// does not answer again within a minute.
func (d Drive) Run(ctx context.Context) (*History, error) {
	h, began := &History{}, time.Now()
	var done atomic.Int64
	var failed error
	var once sync.Once
	var all sync.WaitGroup
	work := func(w int) error {
		random := rand.New(rand.NewPCG(uint64(w), 1))
		for i := range d.Each {
			if done.Add(1) == int64(d.Workers*d.Each/3) && d.Disturb != nil {
				d.Disturb()
			}
			if err := d.runAndRecord(ctx, h, began, w, randomOp(random, fmt.Sprintf("%d.%d", w, i))); err != nil {
				return err
			}
		}
		return nil
	}
	for w := range d.Workers {
		all.Go(func() {
			if err := work(w); err != nil {
				once.Do(func() { failed = err })
			}
		})
	}
	all.Wait()
	return h, failed
}

// runAndRecord performs one operation and records it.
func (d Drive) runAndRecord(ctx context.Context, h *History, began time.Time, w int, in registerOp) error {
	call := time.Since(began)
	out, err := runOp(ctx, d.Engine, &in)
	o := porcupine.Operation{ClientId: w, Input: in, Call: int64(call), Output: out, Return: int64(time.Since(began))}
	var busy *store.Busy
	switch {
	case err == nil:
		h.add(o, false)
		return nil
	case errors.As(err, &busy):
		return nil // refused: no reader can have seen it
	case d.Disturb == nil:
		return fmt.Errorf("%+v: %w", in, err)
	}
	if out.unknown {
		o.Return = math.MaxInt64
		h.add(o, true)
	}
	return d.recovered(ctx)
}

// recovered waits until the engine answers again, at most a minute.
func (d Drive) recovered(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var r store.Record
	for {
		err := d.Engine.Get(ctx, store.Key{Space: "s", Name: "k0"}, &r)
		if err == nil || errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("no answer since it was disturbed: %w", err)
		}
	}
}

func randomOp(random *rand.Rand, value string) registerOp {
	in := registerOp{name: fmt.Sprint("k", random.IntN(4))}
	switch n := random.IntN(10); {
	case n < 4: // get
	case n < 7:
		in.action, in.value = store.Put, value
	case n < 9:
		in.action, in.value, in.expect = store.Put, value, "?" // runOp sets it to the value it reads
	default:
		in.action = store.Delete
	}
	return in
}

// runOp performs one operation. A compare-and-set reads first and replaces the value it read.
// runOp updates in accordingly.
func runOp(ctx context.Context, e store.Engine, in *registerOp) (registerResult, error) {
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
			value := string(r.Value)
			if none {
				value = ""
			}
			return registerResult{value: value}, nil
		}
		in.expect = string(r.Value)
	}
	o := store.Op{Action: in.action, Name: in.name, Value: []byte(in.value)}
	if in.expect != "" {
		o.If.Version = r.Version
	}
	err := e.Write(ctx, "s", o)
	if _, ok := errors.AsType[*store.Conflict](err); ok {
		return registerResult{}, nil
	}
	return registerResult{applied: err == nil, unknown: err != nil}, err
}

// Linearizable drives the engine and fails the test unless the history is linearizable.
func Linearizable(t *testing.T, d Drive) {
	t.Helper()
	h, err := d.Run(t.Context())
	if err != nil {
		t.Error(err)
		return
	}
	if t.Logf("%s", h); !h.Explained() {
		t.Errorf("%s: no order of the operations explains the results", h)
	}
}

func testLinearizable(t *testing.T, s *suite) {
	Linearizable(t, Drive{Engine: s.Engine, Workers: 8, Each: 150})
}

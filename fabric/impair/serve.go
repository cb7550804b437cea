package impair

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"runtime"
	"slices"
	"time"
)

// Verb is the hidden verb of the program that runs an emulator.
const Verb = "impair-link"

// An order is a line of JSON to an emulator, which answers each order by a
// line.
type order struct {
	Start  *start    `json:"start,omitempty"` // the first order
	Add    *addition `json:"add,omitempty"`
	Meet   *meeting  `json:"meet,omitempty"`
	Result string    `json:"result,omitempty"` // instance: return the counts of its link so far
	Remove string    `json:"remove,omitempty"` // instance: remove its link and return the counts
}

type start struct {
	CPU *int `json:"cpu,omitempty"` // nil: any
}

// An addition is a link to emulate between two interfaces.
type addition struct {
	Instance string `json:"instance"`
	Outer    string `json:"outer"` // towards the fabric
	Inner    string `json:"inner"` // towards the instance
	Link     Link   `json:"link"`
	Seed     uint64 `json:"seed"`
}

// A meeting has the addresses of the peers of an instance's link.
type meeting struct {
	Instance  string       `json:"instance"`
	Addresses []netip.Addr `json:"addresses"`
}

// An answer is the result of an order.
type answer struct {
	Error string `json:"error,omitempty"`
	Made  []Made `json:"made,omitempty"`
}

// Serve is the verb. It runs an emulator between interfaces of the process's
// network namespace, by the orders on stdin, until stdin ends. stdin ends with
// the program that started the emulator, however that ends.
func Serve(ctx context.Context, now func() time.Time, stdin io.Reader, stdout io.Writer) error {
	orders, answers := json.NewDecoder(stdin), json.NewEncoder(stdout)
	var first order
	if err := orders.Decode(&first); err != nil {
		return fmt.Errorf("reading the first order: %w", err)
	}
	if first.Start == nil {
		return errors.New("the first order does not start the emulator; only `vitrine characterize` runs this verb")
	}
	e, err := newEmulator(now)
	if err != nil {
		return err
	}
	ran := make(chan error, 1)
	go func() { ran <- e.run(first.Start.CPU) }()
	served := make(chan error, 1)
	go func() { served <- e.serve(ctx, orders, answers) }()
	if err := answers.Encode(answer{}); err != nil {
		return err
	}
	select {
	case err := <-ran: // the reader of stdin ends with the process
		return err
	case err := <-served:
		return errors.Join(err, e.stop(ran))
	}
}

// stop ends the thread and closes the wires.
func (e *emulator) stop(ran <-chan error) error {
	err := e.change(func() { e.ended = true })
	err = errors.Join(err, <-ran)
	for _, w := range e.wires {
		err = errors.Join(err, w.close())
	}
	return err
}

// serve answers orders until there are no more.
func (e *emulator) serve(ctx context.Context, orders *json.Decoder, answers *json.Encoder) error {
	for ctx.Err() == nil {
		var o order
		err := orders.Decode(&o)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading an order: %w", err)
		}
		made, err := e.do(o)
		a := answer{Made: made}
		if err != nil {
			a.Error = err.Error()
		}
		if err := answers.Encode(a); err != nil {
			return fmt.Errorf("answering an order: %w", err)
		}
	}
	return nil
}

func (e *emulator) do(o order) (made []Made, err error) {
	if o.Add != nil {
		w, err := openWire(*o.Add)
		if err != nil {
			return nil, err
		}
		return nil, e.change(func() { e.wires = append(e.wires, w) })
	}
	if o.Meet != nil {
		return nil, e.meet(*o.Meet)
	}
	var w *wire
	found := e.change(func() {
		at := slices.IndexFunc(e.wires, func(w *wire) bool { return w.name == o.Result+o.Remove })
		if at < 0 {
			err = fmt.Errorf("no link of instance %q", o.Result+o.Remove)
			return
		}
		w = e.wires[at]
		made, err = w.result()
		if o.Remove != "" {
			e.wires = slices.Delete(e.wires, at, at+1)
		}
	})
	if o.Remove != "" && w != nil {
		err = errors.Join(err, w.close())
		// Automatic collection is off, so tens of megabytes of each removed link would
		// stay on the heap. The collection stops the thread only briefly, because the
		// heap has few pointers.
		runtime.GC()
	}
	return made, errors.Join(found, err)
}

// meet sets the peers of a link. It applies to packets that arrive from now on.
func (e *emulator) meet(m meeting) (err error) {
	found := e.change(func() {
		at := slices.IndexFunc(e.wires, func(w *wire) bool { return w.name == m.Instance })
		if at < 0 {
			err = fmt.Errorf("no link of instance %q", m.Instance)
			return
		}
		for _, d := range []*direction{e.wires[at].out, e.wires[at].in} {
			if d.peers != nil { // the link may have peers one way only
				d.peers = peersOf(m.Addresses)
			}
		}
	})
	return errors.Join(found, err)
}

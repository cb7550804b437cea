package rest

import (
	"context"
	"fmt"
	"iter"
	"testing"

	"vitrine/store"
	"vitrine/store/nudsf/wire"
)

// A fixed engine has the records a, b and c, whatever is written. Its writes return err.
type fixed struct {
	store.Engine
	err error
}

func (f fixed) Scan(context.Context, store.Query) iter.Seq2[*store.Record, error] {
	return func(yield func(*store.Record, error) bool) {
		for _, name := range []string{"r/a", "r/b", "r/c"} {
			if !yield(&store.Record{Key: store.Key{Space: "s", Name: name}}, nil) {
				return
			}
		}
	}
}

func (f fixed) Write(context.Context, string, ...store.Op) error { return f.err }

// TestDeletion checks that a deletion at the bound of memory deletes what it has selected, and that after
// a conflict or a failure it lists exactly what it deleted.
func TestDeletion(t *testing.T) {
	all := wire.All()
	size := (&store.Record{Key: store.Key{Space: "s", Name: "r/a"}}).Held() + len("a") + TextSize("a") + idBytes
	for _, c := range []struct {
		write error // of the write of all records
		b     error // of the deletion of b on its own
		room  int   // bytes
		want  string
	}{
		{nil, nil, 3 * size, "[a b c] false <nil> [notify a notify b notify c]"},
		{nil, nil, 3*size - 1, "[a b] true <nil> [notify a notify b]"},
		{&store.Conflict{}, ErrKept, 3 * size, "[a c] false <nil> [single a single b single c]"},
		{&store.TooLarge{}, store.ErrClosed, 3 * size, fmt.Sprintf("[a] false after 1 deletions: %v [single a single b]", store.ErrClosed)},
		{store.ErrClosed, nil, 3 * size, fmt.Sprintf("[] false %v []", store.ErrClosed)},
	} {
		var log []string
		hold := &Hold{room: NewRoom(maxHold), taken: int64(maxHold - c.room)}
		d := Deletion{Engine: fixed{err: c.write}, Hold: hold, Space: "s", Prefix: "r/", Filter: &all}
		d.Select = func(*store.Record) (bool, *wire.Record, error) { return true, &wire.Record{}, nil }
		d.Notify = func(id string, _ *wire.Record) { log = append(log, "notify "+id) }
		d.Single = func(id string) error {
			log = append(log, "single "+id)
			if id == "b" {
				return c.b
			}
			return nil
		}
		ids, incomplete, err := d.Run(t.Context())
		if got := fmt.Sprint(ids, " ", incomplete, " ", err, " ", log); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"vitrine/store"
	"vitrine/store/nudsf/wire"
)

// Begin returns the context and the memory of a search or a deletion by filter. The context ends
// after SearchTime. Call end after the answer.
func (c *Config) Begin(r *http.Request) (ctx context.Context, hold *Hold, end func()) {
	ctx, cancel := context.WithTimeoutCause(r.Context(), c.SearchTime, &overtime{c.SearchTime})
	hold = &Hold{room: c.Room}
	return ctx, hold, func() {
		cancel()
		hold.Give(int(hold.taken))
	}
}

// overtime is the cause of the end of a context of Begin.
type overtime struct{ after time.Duration }

func (e *overtime) Error() string {
	return fmt.Sprintf("not all records could be looked at within %s: narrow the filter", e.after)
}

// MaxAnswer bounds the answer to a search or a deletion by filter, in bytes.
const MaxAnswer = 16 << 20

// ErrEnough means that an answer has no room for another ID.
var ErrEnough = errors.New("rest: the answer is full")

// IDs are the IDs in an answer.
type IDs struct {
	List []string
	hold *Hold
	text int // bytes in the answer
}

// NewIDs returns a list without IDs. Its memory counts in hold.
func NewIDs(hold *Hold) *IDs { return &IDs{hold: hold} }

// idBytes is the memory of an ID besides its text: the string's header, as the list grows.
const idBytes = 32

// Reserve makes room for an ID that is added later. It returns ErrEnough if the answer has none.
func (l *IDs) Reserve(id string) error {
	size := TextSize(id)
	if l.text+size > MaxAnswer {
		return ErrEnough
	}
	if err := l.hold.Take(len(id) + size + idBytes); err != nil {
		return err
	}
	l.text += size
	return nil
}

// Add adds IDs that have room.
func (l *IDs) Add(ids ...string) { l.List = append(l.List, ids...) }

// TextSize returns the bytes of a string in a JSON array or object, with the comma.
func TextSize(s string) int {
	text, err := json.Marshal(s)
	if err != nil { // cannot happen
		return 6 * len(s)
	}
	return len(text) + len(",")
}

// A Partial is the error of a deletion by filter that failed after it had deleted something.
type Partial struct {
	Deleted int
	Err     error
}

func (e *Partial) Error() string {
	return fmt.Sprintf("after %d deletions: %v", e.Deleted, e.Err)
}

// Unwrap returns the failure.
func (e *Partial) Unwrap() error { return e.Err }

// ended returns the outcome of a deletion by filter that deleted the given IDs. If it
// stopped at a limit of time or memory, the list is a valid answer, but more records may
// match. After any other error, the returned error has the number of deleted records.
func ended(deleted *IDs, err error) (incomplete bool, _ error) {
	var late *store.Late
	var over *overtime
	switch {
	case err == nil:
		return false, nil
	case len(deleted.List) == 0:
		return false, err
	case errors.Is(err, ErrEnough), errors.Is(err, errHold), errors.As(err, &late), errors.As(err, &over):
		return true, nil
	}
	return false, &Partial{Deleted: len(deleted.List), Err: err}
}

// cut returns the cause of ctx's end if ctx has ended, because err then follows from it.
func cut(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// problem returns the answer to a deletion that failed in its course.
func (e *Partial) problem() *wire.Problem {
	p := *Problem(e.Err)
	p.Detail = fmt.Sprintf("%d were deleted, then: %s", e.Deleted, p.Detail)
	return &p
}

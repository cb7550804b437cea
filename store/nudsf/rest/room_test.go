package rest

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"vitrine/store"
	"vitrine/store/nudsf/wire"
)

// TestRoom checks that requests share a room, that each returns its part, and that no request
// exceeds its bound.
func TestRoom(t *testing.T) {
	c := &Config{SearchTime: time.Minute, Room: NewRoom(3 * maxHold / 2)}
	request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	_, one, endOne := c.Begin(request)
	_, two, endTwo := c.Begin(request)
	if err := one.Take(maxHold); err != nil {
		t.Fatal(err)
	}
	if err := one.Take(1); !errors.Is(err, errHold) {
		t.Errorf("one request above its bound: got %v, want errHold", err)
	}
	var busy *store.Busy
	if err := two.Take(maxHold); !errors.As(err, &busy) {
		t.Errorf("two requests above the shared room: got %v, want a busy error", err)
	}
	if err := two.Take(maxHold / 2); err != nil {
		t.Errorf("two requests within the shared room: %v", err)
	}
	endOne()
	if err := two.Take(maxHold / 2); err != nil {
		t.Errorf("request after the other one ended: %v", err)
	}
	endTwo()
	if n := c.Room.taken.Load(); n != 0 {
		t.Errorf("%d bytes are still reserved after all requests ended", n)
	}
}

// TestAnswerBytes checks that the IDs in an answer stay within MaxAnswer as text, whatever
// characters they contain.
func TestAnswerBytes(t *testing.T) {
	for _, character := range []string{"a", "<", "ü"} {
		c := &Config{SearchTime: time.Minute, Room: NewRoom(1 << 30)}
		request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		_, hold, end := c.Begin(request)
		list, id := NewIDs(hold), strings.Repeat(character, 1000)
		var err error
		for err == nil {
			if err = list.Reserve(id); err == nil {
				list.Add(id)
			}
		}
		end()
		if !errors.Is(err, ErrEnough) {
			t.Fatalf("%s: %v", character, err)
		}
		text := 0
		for _, id := range list.List {
			text += TextSize(id)
		}
		if text > MaxAnswer || text < MaxAnswer-10_000 {
			t.Errorf("%s: got an answer of %d bytes, want just below MaxAnswer", character, text)
		}
	}
}

// TestEnded checks how a deletion by filter ends. A bound ends it with an incomplete answer, or
// with the bound's error if nothing has been deleted. Any other error says how many records were
// deleted.
func TestEnded(t *testing.T) {
	some := &IDs{List: []string{"a", "b"}}
	for _, bound := range []error{ErrEnough, errHold, &store.Late{}, &overtime{time.Second}} {
		if incomplete, err := ended(some, bound); !incomplete || err != nil {
			t.Errorf("ended with %v after deletions: got %v, %v", bound, incomplete, err)
		}
		if incomplete, err := ended(&IDs{}, bound); incomplete || !errors.Is(err, bound) {
			t.Errorf("ended with %v before any deletion: got %v, %v", bound, incomplete, err)
		}
	}
	if incomplete, err := ended(some, nil); incomplete || err != nil {
		t.Errorf("ended without an error: got %v, %v", incomplete, err)
	}
	_, err := ended(some, &store.Busy{What: "the disk", RetryAfter: time.Second})
	p := Problem(err)
	if p.Status != http.StatusServiceUnavailable || p.Cause != wire.CauseCongestion || p.RetryAfter != time.Second || !strings.HasPrefix(p.Detail, "2 were deleted") {
		t.Errorf("busy engine after 2 deletions: got %+v", p)
	}
}

package rest

import (
	"net/http"
	"sync/atomic"
	"time"

	"vitrine/store"
	"vitrine/store/nudsf/wire"
)

// A Room bounds the bytes that all searches and deletions by filter hold at the same time.
type Room struct {
	size  int64
	taken atomic.Int64
}

// NewRoom returns a Room of size bytes.
func NewRoom(size int64) *Room { return &Room{size: size} }

// A Hold is the memory that one request takes from a Room: the IDs that it has seen, and
// its answer.
type Hold struct {
	room  *Room
	taken int64
}

// maxHold bounds the bytes of one Hold.
const maxHold = 64 << 20

// errHold means that one request needs more than maxHold.
var errHold = wire.NewProblem(http.StatusForbidden, wire.CauseQueryIncorrect,
	"the request needs more than %d MiB of memory: narrow the filter, or lower limit-range", maxHold>>20)

// Take takes more bytes. It returns errHold, or *store.Busy if the room is full.
func (h *Hold) Take(bytes int) error {
	n := int64(bytes)
	if h.taken+n > maxHold {
		return errHold
	}
	if h.room.taken.Add(n) > h.room.size {
		h.room.taken.Add(-n)
		return &store.Busy{What: "memory for searches and deletions by filter", RetryAfter: time.Second}
	}
	h.taken += n
	return nil
}

// Give returns bytes to the room.
func (h *Hold) Give(bytes int) {
	h.taken -= int64(bytes)
	h.room.taken.Add(-int64(bytes))
}

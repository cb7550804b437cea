package etcd

import (
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"vitrine/store"
)

// TestLateReadsAreRepeated has the errors of a member that knew the deadline of a read and reported it
// before the client did, and of a member that failed in another way.
func TestLateReadsAreRepeated(t *testing.T) {
	e := &Engine{ctx: t.Context()}
	for text, want := range map[string]bool{"context deadline exceeded after 5.001317515s": true, "raft: stopped": false} {
		err := e.readError(t.Context(), status.Error(codes.Unknown, text))
		if _, ok := errors.AsType[*store.Busy](err); ok != want {
			t.Errorf("%q is %v", text, err)
		}
	}
}

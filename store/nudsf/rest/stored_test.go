package rest

import (
	"errors"
	"fmt"
	"testing"

	"vitrine/store"
)

// TestRetry checks that a change is tried again only after a conflict, and at most maxAttempts times.
func TestRetry(t *testing.T) {
	tries := 0
	err := Retry(func() error {
		tries++
		return fmt.Errorf("write record r: %w", &store.Conflict{})
	})
	if _, ok := errors.AsType[*store.Conflict](err); !ok || tries != maxAttempts {
		t.Errorf("endless conflicts: got %d tries, error %v", tries, err)
	}
	tries = 0
	full := func() error {
		if tries++; tries < 3 {
			return &store.Conflict{}
		}
		return store.ErrFull
	}
	if err := Retry(full); !errors.Is(err, store.ErrFull) || tries != 3 {
		t.Errorf("two conflicts: got %d tries, error %v", tries, err)
	}
}

package store_test

import (
	"testing"

	"vitrine/store"
)

// TestPrefixEnd checks the end of the range of strings that begin with a prefix.
func TestPrefixEnd(t *testing.T) {
	for prefix, want := range map[string]string{"": "", "a": "b", "ab": "ac", "a\xff": "b", "a\xff\xff": "b", "\xff\xff": ""} {
		if got := store.PrefixEnd(prefix); got != want {
			t.Errorf("%q: got %q, want %q", prefix, got, want)
		}
	}
}

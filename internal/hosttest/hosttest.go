// Package hosttest is what tests share that use the host: they are skipped where
// something is missing, wait for what others do, and undo what they made.
package hosttest

import (
	"testing"
	"time"

	"vitrine"
)

// Need skips the test where the error is a *vitrine.Unsupported: this host has not
// what the test needs. Any other error fails it.
func Need(t testing.TB, err error) {
	t.Helper()
	if vitrine.IsUnsupported(err) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// AtEnd undoes something when the test has ended; an error fails the test.
func AtEnd(t testing.TB, undo func() error) {
	t.Helper()
	t.Cleanup(func() {
		if err := undo(); err != nil {
			t.Error(err)
		}
	})
}

// Until polls until ok holds. To reach the limit is a failure.
func Until(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(limit)
	for !ok() {
		if t.Failed() {
			t.FailNow()
		}
		if time.Now().After(deadline) {
			t.Fatalf("not so within %s: %s", limit, what)
		}
		<-tick.C
	}
}

package result_test

import "testing"

// TestAttempts checks that a trial is done once an attempt was valid or no more attempts are
// allowed.
func TestAttempts(t *testing.T) {
	r := create(t, t.TempDir())
	appendAll(t, r, 1)
	for attempt := 1; attempt <= 3; attempt++ {
		made, _, done := r.Attempts(outcome(2).Key, 3)
		if made != attempt-1 || done {
			t.Errorf("before attempt %d: %d attempts made, done %t", attempt, made, done)
		}
		o := outcome(2)
		o.Attempt, o.Valid, o.Reason = attempt, false, "a stall"
		if err := r.Append(o); err != nil {
			t.Fatal(err)
		}
	}
	if made, last, done := r.Attempts(outcome(2).Key, 3); made != 3 || last.Attempt != 3 || last.Valid || !done {
		t.Errorf("after the most attempts: %d made, last key %+v, done %t", made, last.Key, done)
	}
	if made, last, done := r.Attempts(outcome(1).Key, 3); made != 1 || last.Seq != 1 || !done {
		t.Errorf("a valid one: %d, %+v, %t", made, last.Key, done)
	}
}

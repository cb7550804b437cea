package overload

import (
	"testing"
	"time"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func config() Config {
	return Config{Target: 100 * time.Millisecond, Initial: 100, Min: 10, Bucket: 20}
}

// drive offers rate requests/s for d, each with the given latency, and returns
// the number admitted.
func drive(m *Monitor, from time.Time, rate float64, d, latency time.Duration) (admitted int, end time.Time) {
	gap := time.Duration(float64(time.Second) / rate)
	end = from.Add(d)
	for now := from; now.Before(end); now = now.Add(gap) {
		if m.Admit(now) {
			admitted++
			m.Done(now.Add(latency), latency)
		}
	}
	return admitted, end
}

func TestBucketBounds(t *testing.T) {
	m := New(config(), start)
	admitted := 0
	for range 100 {
		if m.Admit(start) {
			admitted++
		}
	}
	if admitted != 20 {
		t.Errorf("admitted a burst of %d, want the bucket's 20", admitted)
	}
	for range 2 {
		if !m.Admit(start.Add(20 * time.Millisecond)) { // 2 tokens at 100/s
			t.Error("the bucket did not refill")
		}
	}
	if m.Admit(start.Add(20 * time.Millisecond)) {
		t.Error("the bucket refilled too fast")
	}
	if m.Admit(start) {
		t.Error("the bucket refilled when the clock went back")
	}
}

func TestRateFallsMultiplicatively(t *testing.T) {
	m := New(config(), start)
	now := start
	for before := m.Rate(); before > 10; {
		_, now = drive(m, now, 200, 10*time.Millisecond, time.Second)
		// At twice the target and above, each step halves the rate.
		if rate := m.Rate(); rate != before {
			if rate != max(before/2, 10) {
				t.Errorf("the rate fell from %g to %g, want half", before, rate)
			}
			before = rate
		}
	}
	for range 100 {
		_, now = drive(m, now, 200, time.Second, time.Second)
	}
	if m.Rate() != 10 {
		t.Errorf("rate after a long overload: got %g, want the minimum 10", m.Rate())
	}
}

func TestRateRisesAdditively(t *testing.T) {
	m := New(config(), start)
	now := start
	before := m.Rate()
	for range 10 {
		_, now = drive(m, now, 300, time.Second, 10*time.Millisecond)
		rise := m.Rate() - before
		// The rate rises by up to 10/s (half the bucket of 20) every 100 ms, and
		// only while in use.
		if rise < 0 || rise > 101 {
			t.Errorf("the rate rose from %g by %g in one second", before, rise)
		}
		before = m.Rate()
	}
	if before < 300 || before > 700 {
		t.Errorf("the rate settled at %g with 300 calls/s offered", before)
	}
	drive(m, now, 20, 10*time.Second, 10*time.Millisecond)
	if m.Rate() != before {
		t.Errorf("the rate rose to %g with 20 calls/s offered", m.Rate())
	}
}

func TestRecovers(t *testing.T) {
	m := New(config(), start)
	_, now := drive(m, start, 200, 10*time.Second, time.Second)
	if m.Rate() > 20 {
		t.Fatalf("rate in overload: got %g, want at most 20", m.Rate())
	}
	_, now = drive(m, now, 100, 20*time.Second, 5*time.Millisecond)
	if admitted, _ := drive(m, now, 100, time.Second, 5*time.Millisecond); admitted != 100 {
		t.Errorf("admitted %d of 100 calls after the overload", admitted)
	}
	if m.Latency() > 10*time.Millisecond {
		t.Errorf("got latency %s, want at most 10ms", m.Latency())
	}
}

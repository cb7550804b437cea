package storetest

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"vitrine/store"
)

// ExpiringRecords is the environment variable that sets the number of records of Expire, for the
// proof at full size (docs/proofs.md).
const ExpiringRecords = "VITRINE_PROOF_RECORDS"

// Number returns the positive number in an environment variable, or usual if it is not set.
func Number(t *testing.T, variable string, usual int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s is %q, not a positive number", variable, text)
	}
	return n
}

// Expire writes many records. Those with even numbers live for an hour, the others for two. It moves
// the clock by an hour, twice. Each time exactly the records whose time is over must expire, and the
// engine must delete them. usual is the number of records unless ExpiringRecords is set.
func Expire(t *testing.T, e store.Engine, clock *Clock, usual int) {
	t.Helper()
	records := Number(t, ExpiringRecords, usual)
	began := time.Now()
	writeExpiring(t, e, clock, records)
	t.Logf("%d records written in %s", records, time.Since(began).Round(time.Millisecond))
	if even, odd := living(t, e); even != (records+1)/2 || odd != records/2 {
		t.Fatalf("%d and %d records of %d before their time", even, odd, records)
	}
	for hour, left := range []int{records / 2, 0} {
		began = time.Now()
		clock.Advance(time.Hour)
		if even, odd := living(t, e); even != 0 || odd != left {
			t.Fatalf("hour %d: %d and %d records live, want 0 and %d", hour+1, even, odd, left)
		}
		awaitDeleted(t, e, left)
		t.Logf("hour %d: expired records deleted in %s", hour+1, time.Since(began).Round(time.Millisecond))
	}
}

// writeExpiring writes the records of Expire.
func writeExpiring(t *testing.T, e store.Engine, clock *Clock, records int) {
	t.Helper()
	const writers = 8
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for first := w * store.MaxOps; first < records; first += writers * store.MaxOps {
				var ops []store.Op
				for n := first; n < min(first+store.MaxOps, records); n++ {
					at := clock.Now().Add(time.Duration(1+n%2) * time.Hour)
					ops = append(ops, store.Op{Action: store.Put, Name: fmt.Sprintf("%08d", n), Value: []byte("v"), Expires: at})
				}
				if err := e.Write(t.Context(), "s", ops...); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// living counts the records with even and with odd numbers.
func living(t *testing.T, e store.Engine) (even, odd int) {
	t.Helper()
	for r, err := range e.Scan(t.Context(), store.Query{Space: "s"}) {
		if err != nil {
			t.Fatal(err)
		}
		if name := r.Key.Name; name[len(name)-1]%2 == 0 { // the digit 0 is even
			even++
		} else {
			odd++
		}
	}
	return even, odd
}

// markers are the keys that an engine may count besides records.
const markers = 1

// awaitDeleted waits until the engine keeps at most left records.
func awaitDeleted(t *testing.T, e store.Engine, left int) {
	t.Helper()
	tick := time.NewTicker(500 * time.Millisecond) // to count a million records takes a while
	defer tick.Stop()
	for end := time.Now().Add(10 * time.Minute); ; <-tick.C {
		g, err := e.(store.Measured).Gauges(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if g.Records <= int64(left+markers) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d records are kept, and %d live", g.Records, left)
		}
	}
}

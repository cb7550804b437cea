package replica

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestRecordsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTable(nil, nil, nil)
		go table.run(t.Context())
		expires := time.Now().Add(time.Minute)
		table.set("a", Record{Value: []byte("v"), Version: 1, Expires: expires})
		table.set("b", Record{Value: []byte("v"), Version: 1, Expires: expires.Add(time.Minute)})
		table.set("c", Record{Value: []byte("v"), Version: 1})
		table.set("a", Record{Value: []byte("old"), Version: 1, Expires: expires.Add(time.Hour)}) // not newer
		time.Sleep(59 * time.Second)
		if r := table.get("a", time.Now()); string(r.Value) != "v" {
			t.Errorf("got %q before the expiry", r.Value)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if r := table.get("a", time.Now()); r.Version != 0 || table.len() != 2 {
			t.Errorf("got %q after the expiry; %d records are left, want 2", r.Value, table.len())
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if table.len() != 1 {
			t.Errorf("got %d records, want only the one without expiry", table.len())
		}
	})
}

func TestTimerWaitsItsTurn(t *testing.T) {
	for rank := range 3 {
		synctest.Test(t, func(t *testing.T) {
			var fired []time.Time
			table := newTable(nil, func(string) int { return rank }, func(string, Record) { fired = append(fired, time.Now()) })
			go table.run(t.Context())
			due := time.Now().Add(10 * time.Second)
			table.set("t", Record{Version: 1, Expires: due, Timer: true})
			table.set("u", Record{Version: 1, Expires: due, Timer: true})
			table.set("u", Record{Version: 2, Expires: due.Add(time.Hour), deleted: true})
			time.Sleep(30 * time.Second)
			synctest.Wait()
			if want := due.Add(time.Duration(rank) * stagger); len(fired) != 1 || fired[0].Before(want) || fired[0].After(want.Add(grain)) {
				t.Errorf("rank %d fired at %v, want once at %v", rank, fired, want)
			}
		})
	}
}

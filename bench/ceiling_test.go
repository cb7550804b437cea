package main

import (
	"context"
	"testing"
	"time"
)

// simulated returns a send function. Its device forwards at most capacity; above that, the device
// loses more than the surplus. Its load tool sends at most most.
func simulated(capacity, most float64, calls *int) func(float64, time.Duration) (flood, error) {
	return func(rate float64, lasting time.Duration) (flood, error) {
		*calls++
		wanted := rate * lasting.Seconds()
		f := flood{wanted: wanted, sent: wanted, took: lasting}
		if rate > most {
			f.sent = most * lasting.Seconds()
		}
		offered := f.sent / lasting.Seconds()
		f.arrived = min(offered, capacity) * lasting.Seconds()
		if offered > capacity {
			f.arrived *= 0.6
		}
		f.punctual = f.arrived
		return f, nil
	}
}

// TestCeilingIsNotTheReceiveBuffer checks that messages which a device keeps in its buffer, and forwards after
// the trial, do not count.
func TestCeilingIsNotTheReceiveBuffer(t *testing.T) {
	const capacity, buffer = 200_000, 20_000
	buffered := func(rate float64, lasting time.Duration) (flood, error) {
		sent := min(rate, 1e6) * lasting.Seconds()
		forwarded := min(sent, capacity*lasting.Seconds())
		return flood{wanted: sent, sent: sent, took: lasting, punctual: forwarded, arrived: min(sent, forwarded+buffer)}, nil
	}
	got, err := findCeiling(context.Background(), buffered, 1e6)
	if err != nil || got.rate > capacity/(1-queueAllowed) || got.rate < capacity/rateWidth {
		t.Errorf("found %+v, %v, want about %d", got, err, capacity)
	}
}

func TestCeilingIsTheDevicesCapacity(t *testing.T) {
	for _, capacity := range []float64{900, 45_000, 333_333, 800_000} {
		var calls int
		got, err := findCeiling(context.Background(), simulated(capacity, 1e6, &calls), 1e6)
		if err != nil {
			t.Fatal(err)
		}
		if got.limited || got.rate > capacity*1.001 || got.rate < capacity/rateWidth {
			t.Errorf("capacity %g: found %+v", capacity, got)
		}
		if calls > 40 {
			t.Errorf("capacity %g took %d trials", capacity, calls)
		}
	}
}

func TestCeilingReportsTheLoadToolsLimit(t *testing.T) {
	for _, capacity := range []float64{1e6, 2e6} {
		var calls int
		got, err := findCeiling(context.Background(), simulated(capacity, 5e5, &calls), 6e5)
		if err != nil || !got.limited || got.rate > 5e5 {
			t.Errorf("found %+v, %v; want limited by the load tool", got, err)
		}
	}
}

func TestCeilingRefusesDeadDevice(t *testing.T) {
	var calls int
	if got, err := findCeiling(context.Background(), simulated(1, 1e6, &calls), 1e6); err == nil {
		t.Errorf("found %+v", got)
	}
}

func TestCeilingRefusesCopies(t *testing.T) {
	twice := func(rate float64, lasting time.Duration) (flood, error) {
		return flood{wanted: rate, sent: rate, punctual: 2 * rate, arrived: 2 * rate, took: lasting}, nil
	}
	if got, err := findCeiling(context.Background(), twice, 1e6); err == nil {
		t.Errorf("found %+v", got)
	}
}

func TestParseFlood(t *testing.T) {
	f, err := parseFlood("1000 0.500001 988 998\n", 1000)
	if err != nil || f.sent != 1000 || f.arrived != 998 || f.took != 500001*time.Microsecond || f.samples != 0 {
		t.Errorf("read %+v, %v", f, err)
	}
	if f.queued() < 0.00999 || f.queued() > 0.01001 {
		t.Errorf("%g of %+v arrived late", f.queued(), f)
	}
	if f.behind(time.Second/2) || !f.behind(time.Second/3) || f.loss() < 0.00199 || f.loss() > 0.00201 {
		t.Errorf("%+v is behind or has lost %g", f, f.loss())
	}
	f, err = parseFlood("1000 0.5 998 998 7 12 1 2 3 4 5\n", 2000)
	if err != nil || f.samples != 12 || f.late != 7 || f.latency[2] != 3 || !f.behind(time.Second/2) {
		t.Errorf("read %+v, %v", f, err)
	}
	for _, bad := range []string{"", "1 2", "x 1 2 3", "1 2 3", "1 2 3 4 5"} {
		if f, err := parseFlood(bad, 1); err == nil {
			t.Errorf("%q is %+v", bad, f)
		}
	}
}

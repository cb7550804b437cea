package rate_test

import (
	"math"
	"testing"

	"vitrine"
	"vitrine/search/rate"
)

func TestAt(t *testing.T) {
	history := trials(
		[]float64{1, 1, 1, 0.97, 0.7, 0.5, 0.4},
		[]float64{1, 1, 1, 0.93, 0.6, 0.3, 0.2},
		[]float64{1, 1, 1, 0.95, 0.8, 0.4, 0.3})
	p := rate.At(history, estimate(history)) // about 420
	if p.Underload == nil || p.Underload.Rate != 200 {
		t.Errorf("underload: %+v", p.Underload)
	}
	if p.Capacity == nil || p.Capacity.Rate != 400 || p.Capacity.Succeeded != 950 {
		t.Errorf("capacity is not the median trial at 400: %+v", p.Capacity)
	}
	if p.Overload == nil || p.Overload.Rate != 500 || p.Overload.Succeeded != 700 {
		t.Errorf("overload: %+v", p.Overload)
	}
}

func TestAtTheEnds(t *testing.T) {
	history := trials([]float64{0.5, 0.3, -1})
	p := rate.At(history, estimate(history))
	if p.Underload != nil || p.Capacity == nil || p.Capacity.Rate != 100 || p.Overload == nil || p.Overload.Rate != 200 {
		t.Errorf("all fail: %+v", p)
	}
	history = trials([]float64{1, 1})
	p = rate.At(history, estimate(history))
	if p.Underload == nil || p.Underload.Rate != 100 || p.Capacity == nil || p.Capacity.Rate != 200 || p.Overload != nil {
		t.Errorf("all pass: %+v", p)
	}
	history = trials([]float64{-1, -1})
	if p = rate.At(history, estimate(history)); p != (rate.Points{}) {
		t.Errorf("never valid: %+v", p)
	}
}

func TestUseAtCapacity(t *testing.T) {
	value := func(x float64) *float64 { return &x }
	history := trials([]float64{1, 1, 0.5, -1}, []float64{1, 1, 0.4, -1})
	for i := range history {
		busy := history[i].Rate / 1000
		if history[i].Repeat == 2 {
			busy += 0.1
		}
		history[i].Use = map[string]vitrine.Use{
			"sprout-1": {Component: "sprout", CPU: value(busy), VCPUs: 0.5, RxBytes: value(2000), TxBytes: value(1000)},
			"sprout-2": {Component: "sprout", CPU: value(busy / 2), VCPUs: 0.5, RxBytes: value(1000), TxBytes: value(0)},
			"bono-1": {Component: "bono", CPU: value(busy), VCPUs: 0, Memory: value(50), MemoryLimit: 200,
				RxBytes: value(3000), TxBytes: value(3000)},
			"homer-1": {Component: "homer", VCPUs: 0.5, MemoryLimit: 200, RxBytes: value(1)},
		}
	}
	use := rate.UseAtCapacity(history, estimate(history))
	cpu, memory, network := use[vitrine.CPU], use[vitrine.Memory], use[vitrine.Network]
	// At 200: 0.2 and 0.3 CPUs in the two repeats, half of that on the second
	// instance; each of 0.5.
	if len(cpu) != 1 || math.Abs(cpu["sprout"]-(0.4+0.2+0.6+0.3)/4) > 1e-9 {
		t.Errorf("cpu: %v", cpu)
	}
	if len(memory) != 1 || memory["bono"] != 0.25 {
		t.Errorf("memory: %v", memory)
	}
	if len(network) != 2 || network["sprout"] != 0.25 || network["bono"] != 0.75 {
		t.Errorf("network: %v", network)
	}
}

func TestUseThatWasNotReadIsAbsent(t *testing.T) {
	history := trials([]float64{1, 0.5})
	history[0].Use = map[string]vitrine.Use{"bono-1": {Component: "bono", VCPUs: 1, Missing: map[string]string{"cpu": "no cgroup"}}}
	if use := rate.UseAtCapacity(history, estimate(history)); len(use) != 0 {
		t.Errorf("%v", use)
	}
	if use := rate.UseAtCapacity(nil, estimate(nil)); len(use) != 0 {
		t.Errorf("%v", use)
	}
}

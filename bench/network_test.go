package main

import (
	"math"
	"testing"
	"time"
)

const replaySaid = `Actual: 2000000 packets (128000000 bytes) sent in 4.62 seconds
Rated: 27665512.7 Bps, 221.32 Mbps, 400000.00 pps
Statistics for network device: eth0
	Successful packets:        2000000
`

func TestReadReplay(t *testing.T) {
	packets, took, err := readReplay([]byte(replaySaid))
	if packets != 2_000_000 || took != 5*time.Second || err != nil {
		t.Errorf("%d packets in %v, %v", packets, took, err)
	}
	for _, bad := range []string{"", "Actual: 1 packets", "Actual: 1 packets\nRated: 0.00 pps"} {
		if packets, took, err := readReplay([]byte(bad)); err == nil {
			t.Errorf("%q: %d packets in %v", bad, packets, took)
		}
	}
}

// TestLostPacketsCountAsLate checks that packets that did not arrive are beyond all others.
func TestLostPacketsCountAsLate(t *testing.T) {
	arrived := []float64{1, 2, 3, 4}
	for _, c := range []struct {
		all         int
		share, want float64
	}{{4, 0.5, 2}, {4, 1, 4}, {5, 0.75, 4}, {5, 1, math.Inf(1)}, {8, 0.5, 4}, {8, 0.99, math.Inf(1)}} {
		if got := percentileOfAll(arrived, c.all, c.share); got != c.want {
			t.Errorf("%g of %d packets: %g, want %g", c.share, c.all, got, c.want)
		}
	}
}

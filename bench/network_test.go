package main

import (
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

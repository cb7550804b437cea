package main

import (
	"net"
	"testing"

	"vitrine"
)

// TestLoopbackRefusesDirectorsElsewhere checks that the fabric loopback is refused if a director is on another
// host. That director would find all instances away.
func TestLoopbackRefusesDirectorsElsewhere(t *testing.T) {
	controls := map[string]bool{ // and whether each is on another host
		"127.0.0.1:8090": false, "http://[::1]:8090": false, "0.0.0.0:8090": false, "localhost:8090": false, "https://director:8090": false,
		"unix:/run/control.sock": false, "https://192.0.2.1:8090": true, "192.0.2.1:8090": true, "https://[2001:db8::1]:8090": true,
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range own {
		if network, ok := a.(*net.IPNet); ok {
			controls["https://"+net.JoinHostPort(network.IP.String(), "8090")] = false
		}
	}
	c := flexFile(t, t.TempDir(), "")
	for control, elsewhere := range controls {
		c.Directors[0].Control = control
		if err := checkReach(c); vitrine.IsBadInput(err) != elsewhere {
			t.Errorf("%s: got error %v, want one: %t", control, err, elsewhere)
		}
	}
}

package trial_test

import (
	"net"
	"strconv"
	"testing"
	"time"

	"vitrine/spec"
)

// deaf is a function that ignores SIP requests at first, as a starting function does, and then
// answers all. The second argument is the number of ignored requests.
func deaf(args []string) error {
	ignored, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	conn, err := net.ListenPacket("udp", args[0])
	if err != nil {
		return err
	}
	for request := make([]byte, 2048); ; {
		_, from, err := conn.ReadFrom(request)
		if err != nil {
			return err
		}
		if ignored--; ignored >= 0 {
			continue
		}
		if _, err := conn.WriteTo([]byte("SIP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n"), from); err != nil {
			return err
		}
	}
}

// TestReadyDespiteLostProbes checks that a lost probe hardly delays the next one: twenty lost
// probes must fit into a time limit of 5 s.
func TestReadyDespiteLostProbes(t *testing.T) {
	c := setUp(t, "", "[fr1s]", "")
	front := c.config.Deployment.Component("front")
	front.Command[1] = "deaf"
	front.Command = append(front.Command, "20")
	front.Ready = &spec.Ready{SIP: "tcp", Timeout: 5 * time.Second}
	summary, err := c.measure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := len(summary.Sizings); got != 1 {
		t.Errorf("measured %d sizings, want 1", got)
	}
}

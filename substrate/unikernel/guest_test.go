package unikernel

import (
	"strings"
	"testing"
)

// FuzzControl: the host must not trust the lines that a guest sends.
func FuzzControl(f *testing.F) {
	f.Add("running\nexit 7\n")
	f.Add("running\nrunning\n")
	f.Add("failed no such program\nrunning")
	f.Fuzz(func(t *testing.T, sent string) {
		g := &guest{builtHere: true, running: make(chan struct{})}
		g.control(strings.NewReader(sent))
		first, _, _ := strings.Cut(sent, "\n")
		select {
		case <-g.running:
		default:
			if first == "running" {
				t.Error("the application does not run")
			}
		}
	})
}

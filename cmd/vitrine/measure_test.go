package main

import (
	"io"
	"strings"
	"testing"

	"vitrine"
	"vitrine/measure"
)

// FuzzNetworkFlags: whatever is given is refused as bad input, or is a plan that
// can be made.
func FuzzNetworkFlags(f *testing.F) {
	for _, seed := range []string{
		"--frames 64,1514 --count 1000", "--frames 64-1514", "--frames=", "--rate NaN", "--rate 1e9", "--rate -1", "--count -5",
		"--head 9223372036854775807", "--measure latency,latency --fabric auto", "--substrate process,,", "--repeat 1000 --count 4194304", "--tail 1 --head 1 --count 100",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		var flags networkFlags
		c := networkCommand(&flags)
		c.SetOut(io.Discard)
		c.SetErr(io.Discard)
		if c.ParseFlags(strings.Fields(line)) != nil {
			return
		}
		s, err := flags.settings(c.Flags().Changed("rate"))
		if err != nil {
			if !vitrine.IsBadInput(err) {
				t.Errorf("%q: %v is no bad input", line, err)
			}
			return
		}
		if flags.repeat > 50 { // a plan of that many is only long
			return
		}
		if _, err := measure.MakePlan(s); err != nil {
			t.Errorf("%q was taken and is no plan: %v", line, err)
		}
	})
}

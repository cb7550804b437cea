package hosttest

import "testing"

// failures is a test that counts its errors.
type failures struct {
	testing.TB
	count int
}

func (*failures) Helper() {}

func (f *failures) Errorf(string, ...any) { f.count++ }

func TestNoRace(t *testing.T) {
	for _, c := range []struct {
		output string
		want   int
	}{
		{"", 0},
		{"ready on 127.0.0.1:80\n", 0},
		{"ready on 127.0.0.1:80\n==================\nWARNING: DATA RACE\nWrite at 0x00c0 by goroutine 7:\n", 1},
	} {
		f := &failures{TB: t}
		if NoRace(f, "a process", c.output); f.count != c.want {
			t.Errorf("%q: got %d errors, want %d", c.output, f.count, c.want)
		}
	}
}

package keep

import (
	"slices"
	"testing"
	"time"
)

func TestDueKeysAreInTheOrderOfTheirTimes(t *testing.T) {
	var keys []string
	for _, ms := range []int64{0, 999, 1_000, 1_732_430_000_000, 1_732_430_000_001, 9_999_999_999_999} {
		at := time.UnixMilli(ms)
		due := dueKey("reg/sip:a@ims.test", at)
		if key, got, ok := parseDueKey(due); !ok || key != "reg/sip:a@ims.test" || !got.Equal(at) {
			t.Errorf("%s was parsed as %s at %s, %t", due, key, got, ok)
		}
		keys = append(keys, due)
	}
	if !slices.IsSorted(keys) {
		t.Errorf("the keys are not sorted: %q", keys)
	}
}

func FuzzDueKey(f *testing.F) {
	f.Add("due/1732430000000/reg/sip:a@ims.test")
	f.Add("due/x/")
	f.Add("due/-1/reg")
	f.Fuzz(func(t *testing.T, due string) {
		key, at, ok := parseDueKey(due)
		if !ok {
			return
		}
		again, same, ok := parseDueKey(dueKey(key, at))
		if !ok || again != key || !same.Equal(at) {
			t.Errorf("%q: %q at %s was parsed as %q at %s", due, key, at, again, same)
		}
	})
}

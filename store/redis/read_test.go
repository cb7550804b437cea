package redis

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// TestFit checks that a page of a watch holds few bytes and at least one change, and that few changes are read
// twice.
func TestFit(t *testing.T) {
	for _, c := range []struct {
		sizes             []int // KiB
		count, kept, next int
	}{
		{nil, 1, 0, 2},
		{[]int{1, 1, 1}, 8, 3, 8},
		{[]int{1024}, 1, 1, 1},
		{[]int{1024, 1024, 1024}, 8, 1, 1},
		{[]int{1, 1, 1024}, 4, 2, 2},
		{[]int{100, 100, 100}, 4, 2, 2},
	} {
		var page []redis.XMessage
		for _, size := range c.sizes {
			page = append(page, redis.XMessage{Values: map[string]any{"r": strings.Repeat("x", size<<10)}})
		}
		kept, next := fit(page, c.count)
		if len(kept) != c.kept || next != c.next {
			t.Errorf("%v KiB: kept %d changes and reads %d next, want %d and %d", c.sizes, len(kept), next, c.kept, c.next)
		}
		for i, m := range page[len(kept):] {
			if m.Values != nil {
				t.Errorf("%v KiB: dropped change %d is still held", c.sizes, len(kept)+i)
			}
		}
	}
}

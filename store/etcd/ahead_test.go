package etcd

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestAhead checks pages whose ranges are bounded by ahead. Together they must have every key once,
// and their ranges may have only a few times as many keys as the pages.
func TestAhead(t *testing.T) {
	t.Parallel()
	const keys, page = 200_000, 1000
	r := rand.New(rand.NewPCG(1, 2))
	for name, key := range map[string]func(i int) string{
		"numbers":        func(i int) string { return fmt.Sprintf("s/%08d", i) },
		"short numbers":  func(i int) string { return fmt.Sprintf("s/%d", i) },
		"random octets":  func(int) string { return fmt.Sprintf("s/%s%d", string(rune(r.IntN(0x700))), r.Uint64()) },
		"long prefix":    func(i int) string { return fmt.Sprintf("s/imsi-%015d@ims.example.org", i*977) },
		"some and far":   func(i int) string { return fmt.Sprintf("s/%c%06d", "aé~"[i%4], i) },
		"growing octets": func(i int) string { return "s/" + string(make([]byte, i%100)) + fmt.Sprint(i) },
	} {
		t.Run(name, func(t *testing.T) {
			var all []string
			for i := range keys {
				all = append(all, key(i))
			}
			slices.Sort(all)
			all = slices.Compact(all)
			got, walked, pages := walk(all, page)
			if !slices.Equal(got, all) {
				t.Fatalf("got %d keys, want %d", len(got), len(all))
			}
			t.Logf("%d pages read %d keys", pages, walked)
			if walked > 8*keys {
				t.Errorf("%d pages read %d keys, want at most 8 times the number of keys", pages, walked)
			}
		})
	}
}

// walk reads all keys in pages, as scan.pages does.
func walk(all []string, page int) (got []string, walked, pages int) {
	low, high, next := "s/", "s0", ahead{}
	for end := high; low < high; end = next.bound(low, high) {
		from, _ := slices.BinarySearch(all, low)
		to, _ := slices.BinarySearch(all, end)
		walked, pages = walked+to-from, pages+1
		some := all[from:min(to, from+page)]
		got = append(got, some...)
		switch {
		case to-from > page:
			last := some[len(some)-1]
			next.saw(some[0], last)
			low = last + "\x00"
		case end == high:
			return got, walked, pages
		default:
			low = end
			if len(some) < page/2 {
				next.few()
			}
		}
	}
	return got, walked, pages
}

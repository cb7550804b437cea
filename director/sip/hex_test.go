package sip

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

func TestHex(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 10000 {
		v := random.Uint64() >> (random.UintN(16) * 4)
		for _, n := range []int{4, 8, 16} {
			low := v
			if n < 16 {
				low = v & (1<<(4*n) - 1)
			}
			text := appendHex(nil, v, n)
			if want := fmt.Sprintf("%0*x", n, low); string(text) != want {
				t.Fatalf("%x with %d digits: got %s, want %s", v, n, text, want)
			}
			if got, ok := parseHex(text); !ok || got != low {
				t.Fatalf("%s decoded as %x, %v", text, got, ok)
			}
			for _, bad := range []byte("gGA/:@`\x00\xff \x61\xe1") {
				wrong := append([]byte(nil), text...)
				wrong[random.IntN(n)] = bad
				if got, ok := parseHex(wrong); ok && fmt.Sprintf("%0*x", n, got) != string(wrong) {
					t.Fatalf("%q decoded as %x", wrong, got)
				}
			}
		}
	}
	for _, bad := range []string{"", "1", "123", "12345", "0123456789abcdef0"} {
		if _, ok := parseHex([]byte(bad)); ok {
			t.Errorf("parseHex accepted %q", bad)
		}
	}
}

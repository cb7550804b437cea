package vitrine

import "testing"

func TestDigitsHaveNoExponent(t *testing.T) {
	for v, want := range map[float64]string{0.999: "0.999", 0.25: "0.25", 87.654: "87.65", 999.96: "1000", 12340: "12340", 1e6: "1000000"} {
		if got := Digits(v); got != want {
			t.Errorf("%g is %q, want %q", v, got, want)
		}
	}
}

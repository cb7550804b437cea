package loadtest

import (
	"strings"
	"testing"

	"vitrine"
)

// Refuses checks that decode rejects each wrong value with a *vitrine.BadInput that names the
// parameter, and that it accepts a trial without parameters.
func Refuses[P any](t *testing.T, decode func(map[string]string) (P, error), wrong map[string][]string) {
	t.Helper()
	for name, values := range wrong {
		for _, v := range values {
			_, err := decode(map[string]string{name: v})
			if !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), name) {
				t.Errorf("%s=%q: error %v", name, v, err)
			}
		}
	}
	if _, err := decode(nil); err != nil {
		t.Error(err)
	}
}

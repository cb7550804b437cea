package result_test

import (
	"slices"
	"testing"

	"vitrine/result"
)

// TestMeasurementsAreReadByKind checks that only the settings of the kind are decoded, because the
// fields of another kind may have other types.
func TestMeasurementsAreReadByKind(t *testing.T) {
	type settings struct {
		Sizes []int `json:"sizes"`
	}
	for _, c := range []struct {
		text        string
		is, fails   bool
		wantedSizes []int
	}{
		{text: ``},
		{text: `{"options": {}}`},
		{text: `{"kind": "chain", "sizes": "all"}`},
		{text: `{"kind": "network", "sizes": [64]}`, is: true, wantedSizes: []int{64}},
		{text: `{"kind": "network", "sizes": "all"}`, fails: true},
		{text: `{`, fails: true},
	} {
		var s settings
		is, err := result.Manifest{Measurement: []byte(c.text)}.ReadMeasurement("network", &s)
		if is != c.is || (err != nil) != c.fails || !slices.Equal(s.Sizes, c.wantedSizes) {
			t.Errorf("%s: got %t, %v, error %v", c.text, is, s.Sizes, err)
		}
	}
}

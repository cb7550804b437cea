package spec

import (
	"testing"

	"go.yaml.in/yaml/v3"
)

func TestCount(t *testing.T) {
	for text, want := range map[string]Count{"3": {3, 3}, "{max: 4}": {0, 4}, "{min: 2}": {2, 0}, "{min: 2, max: 5}": {2, 5}} {
		var got Count
		if err := yaml.Unmarshal([]byte(text), &got); err != nil || got != want {
			t.Errorf("%s is %v, %v", text, got, err)
		}
	}
}

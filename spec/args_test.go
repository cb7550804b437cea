package spec

import (
	"reflect"
	"testing"
)

func TestExpand(t *testing.T) {
	got := Args{"a", "${X}:${Y}", "$X ${NONE}", "${"}.Expand(map[string]string{"X": "${Y}", "Y": "2"})
	if want := []string{"a", "${Y}:2", "$X ", "${"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

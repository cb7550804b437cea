package message

import (
	"encoding/json"
	"testing"
)

// TestTimesKeepTheirLastDigit checks that a reader that takes the numbers of JSON as floating-point numbers
// gets exact times.
func TestTimesKeepTheirLastDigit(t *testing.T) {
	const at, text = 1763900000123456789, "2025-11-23T12:13:20.123456789Z"
	for _, c := range []struct {
		member string
		v      any
	}{
		{"time", &Message{Time: at}}, {"arrived", &Message{Arrived: at}},
		{"begin", &Summary{Begin: at}}, {"end", &Summary{End: at}}, {"since", &Clock{Since: at}},
	} {
		b, err := json.Marshal(c.v)
		if err != nil {
			t.Fatal(err)
		}
		var members map[string]any
		if err := json.Unmarshal(b, &members); err != nil {
			t.Fatal(err)
		}
		if members[c.member] != text {
			t.Errorf("%s: got %v, want %s", c.member, members[c.member], text)
		}
	}
}

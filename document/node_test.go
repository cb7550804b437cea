package document

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"vitrine"
)

// Duration stands for a back end's own duration type, decoded from text.
type Duration time.Duration

func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = Duration(parsed)
	return err
}

func TestNodeText(t *testing.T) {
	var into struct {
		Timeout Duration
		Address netip.Addr
	}
	part := func(text string) Node {
		n, err := parse("x.yaml", []byte(text), "a file", 1)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if err := part("{timeout: 3s, address: 127.0.0.1}").Decode(&into); err != nil || into.Timeout != Duration(3*time.Second) || !into.Address.IsLoopback() {
		t.Errorf("got %+v, %v", into, err)
	}
	for text, want := range map[string]string{
		"{timeout: 3}":     "x.yaml:1:11: timeout is 3: want text such as \"3s\"",
		"{timeout: later}": "x.yaml:1:11: timeout is \"later\": want a number with ms, s, m or h, such as 500ms",
		"{address: here}":  "x.yaml:1:1: ParseAddr",
	} {
		if err := part(text).Decode(&into); !vitrine.IsBadInput(err) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}

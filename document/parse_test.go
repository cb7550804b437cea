package document

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// TestParseJSON checks that the YAML parser reads JSON as encoding/json does.
func TestParseJSON(t *testing.T) {
	for _, text := range []string{
		`{"a": "x\/y\\/z", "b": "\ud83d\ude00 \\ud83d", "c": "\u00e9\n\t\"", "d": [1.5, -2, 1e3, 1E-2, true, false, null, {}, []]}`,
		"{\n\t\"tabs\":\t{\"a\":1,\"b\":\"2\"}\n}\n",
		`{"no":"no","off":"off","y":"1","date":"2020-01-01","null":"null","number":"1e3","merge":"<<"}`,
		strings.Repeat(" ", 5) + `{"long key ` + strings.Repeat("x", 500) + `": "` + strings.Repeat("long ", 1000) + `"}`,
	} {
		n, err := parse("x.json", []byte(text), "a file", 1)
		if err != nil {
			t.Errorf("%.60s: %v", text, err)
			continue
		}
		got, err := decodeValue(n.node)
		if err != nil {
			t.Fatal(err)
		}
		var want any
		if err := json.Unmarshal([]byte(text), &want); err != nil {
			t.Fatal(err)
		}
		if a, b := asJSON(t, got), asJSON(t, want); a != b {
			t.Errorf("got  %s\nwant %s", a, b)
		}
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestAliases(t *testing.T) {
	n, err := parse("x.yaml", []byte("a: &one {x: 1, y: [2]}\nb: *one\nc: [*one, &t text, *t]\n"), "a file", 1)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeValue(n.node)
	if err != nil {
		t.Fatal(err)
	}
	one := map[string]any{"x": 1, "y": []any{2}}
	if want := (map[string]any{"a": one, "b": one, "c": []any{one, "text", "text"}}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	var into map[string]any
	if err := n.node.Decode(&into); err != nil || !reflect.DeepEqual(any(into), got) {
		t.Errorf("decodes to %v, %v", into, err)
	}
}

func TestParseSize(t *testing.T) {
	for text, want := range map[string]Size{
		"1": 1, "4096": 4096, "256MiB": 256 << 20, "256 MiB": 256 << 20, "1.5GiB": 3 << 29, "2kB": 2000, "2KiB": 0, "1GB": 1e9, "1TiB": 1 << 40, "3kiB": 3072, "7B": 7, "1M": 1e6, "1Mi": 1 << 20,
		"": 0, "0": 0, "-1": 0, "1e3": 0, "MiB": 0, "1 M B": 0, "1025TiB": 0, "1PB": 0, "1mb": 0, "0.1B": 0, " 1": 0,
		strings.Repeat("9", 400): 0,
	} {
		got, err := ParseSize(text)
		if got != want || (err != nil) != (want == 0) {
			t.Errorf("%q is %d, %v; want %d", text, got, err, want)
		}
	}
}

func TestParseCPUs(t *testing.T) {
	for text, want := range map[string]string{
		"0": "0", "0-1,3": "0-1,3", "3,1,2,1": "1-3", "5,7": "5,7", "0-0": "0", "8191": "8191",
		"": "", "a": "", "1-": "", "-1": "", "2-1": "", "8192": "", "1,": "", "1--2": "", "99999": "", "1-2-3": "",
	} {
		got, err := ParseCPUs(text)
		if got.String() != want || (err != nil) != (want == "") {
			t.Errorf("%q is %s, %v; want %q", text, got, err, want)
		}
	}
}

func TestIsName(t *testing.T) {
	for text, want := range map[string]bool{
		"a": true, "reg-9": true, "a" + strings.Repeat("9", 31): true,
		"": false, "9a": false, "-a": false, "Reg": false, "a b": false, "a\n": false, "a" + strings.Repeat("9", 32): false,
	} {
		if got := IsName(text); got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}

func TestNearest(t *testing.T) {
	allowed := []string{"component", "components", "stateful", "mode"}
	for given, want := range map[string]string{"komponent": "component", "statful": "stateful", "mdoe": "mode", "colour": "", "": "", "comp": "component", strings.Repeat("x", 1000): ""} {
		if got := nearest(given, allowed); got != want {
			t.Errorf("nearest to %q is %q, want %q", given, got, want)
		}
	}
}

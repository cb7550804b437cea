package document

import (
	"reflect"
	"testing"

	"vitrine"
)

// FuzzParse checks that Parse refuses input only with a BadInput. For accepted
// input, the value checked against schemas must equal the decoded value.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"a: &one {x: 1, y: [2, 1.5, true, null]}\nb: *one\n", `{"a": "x\/y", "b": "\ud83d\ude00", "c": []}`,
		"a: &a [*a]\n", "<<: {a: 1}\n", "a: 1\na: 2\n", "1: x\n", "a: 010\n", "a: .inf\n", "a: !!binary x\n", "a: 2020-01-01\n", "a: |\n  text\n", "# nothing\n", "a\n---\nb\n", "{a: [}\n", "\xff",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		file, err := Parse("x.yaml", raw, "a file")
		if err != nil {
			if !vitrine.IsBadInput(err) {
				t.Errorf("not a BadInput: %v", err)
			}
			return
		}
		checked, err := decodeValue(file.root.node)
		if err != nil {
			return // Decode refuses it before it decodes
		}
		var decoded any
		if err := file.root.decode(&decoded); err != nil || !reflect.DeepEqual(checked, decoded) {
			t.Errorf("checked %#v, decoded %#v, %v", checked, decoded, err)
		}
	})
}

package spec

import (
	"errors"
	"reflect"

	"vitrine"
)

// Read reads the file at path, of a kind that this package does not know: YAML
// or JSON, for its owner to Decode. Errors have the file's places, as
// everywhere.
func Read(path string) (Node, File, error) {
	raw, err := readFile(path)
	if err != nil {
		var bad *vitrine.BadInput
		if errors.As(err, &bad) {
			bad.Want = "name a file of at most 1 MiB that can be read"
		}
		return Node{}, File{}, err
	}
	file, err := newFile(path, raw)
	if err != nil {
		return Node{}, File{}, err
	}
	node, err := parse(path, raw)
	return node, file, err
}

// SchemaOf is the JSON Schema of a file that Read and Decode read into a value
// of that type. The type's comments, by "package.Type.Field", become
// descriptions.
func SchemaOf(of any, title string, comments map[string]string) ([]byte, error) {
	r := reflector()
	r.ExpandedStruct = true
	r.CommentMap = comments
	s := formatted(r.ReflectFromType(reflect.TypeOf(of)))
	s.Title = title
	return indented(s)
}

package flow

import (
	"embed"
	"io/fs"
	"path"
	"slices"
	"strings"

	"vitrine"
	"vitrine/document"
)

//go:embed flows
var shipped embed.FS

// Extension is the file name extension of call-flow files.
const Extension = ".flow"

// Shipped returns the names of the built-in call flows, such as epc/attach, in order.
func Shipped() []string {
	var names []string
	_ = fs.WalkDir(shipped, "flows", func(file string, entry fs.DirEntry, err error) error { // embedded files can be read
		if err == nil && !entry.IsDir() {
			names = append(names, strings.TrimSuffix(strings.TrimPrefix(file, "flows/"), Extension))
		}
		return err
	})
	return names
}

// Groups returns the groups of the built-in call flows, such as epc.
func Groups() []string {
	var groups []string
	for _, name := range Shipped() {
		groups = append(groups, path.Dir(name))
	}
	return slices.Compact(groups)
}

// Find returns the built-in call flow of this name, or all flows of a group.
func Find(name string) ([]*Transaction, error) {
	var found []*Transaction
	for _, each := range Shipped() {
		if each != name && path.Dir(each) != name {
			continue
		}
		text, err := shipped.ReadFile("flows/" + each + Extension)
		if err != nil {
			return nil, err
		}
		t, err := Parse(each, text)
		if err != nil {
			return nil, err
		}
		found = append(found, t)
	}
	if found == nil {
		known := Shipped()
		if !strings.Contains(name, "/") {
			known = append(Groups(), known...)
		}
		return nil, &vitrine.BadInput{File: name, Found: "no such file, and no built-in call flow", Want: document.Choose(name, known)}
	}
	return found, nil
}

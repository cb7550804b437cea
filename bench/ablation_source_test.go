package main

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestEveryConstantHasAReason checks every number in the adaptive search, except 0 and 1 in
// expressions. Either an ablation replaces the number, or the page's tables of sources cover it:
// they name its constant, the whole function or a piece of source text around it.
func TestEveryConstantHasAReason(t *testing.T) {
	page, err := os.ReadFile("../docs/decisions/0016-adaptive-search.md")
	if err != nil {
		t.Fatal(err)
	}
	known := sourced(string(page))
	for _, c := range constants() {
		known[c.name] = true
	}
	all := numbersOf(t, "../search/rate/adaptive*.go")
	if len(all) < 100 {
		t.Fatalf("found only %d numbers", len(all))
	}
	for _, n := range all {
		if !n.coveredBy(known) {
			t.Errorf("%s:%d: no source and no ablation for %s (%s)", n.file, n.line, n.value, cmp.Or(n.name, "in an expression of "+n.function))
		}
	}
}

// TestSourcesAreOfConstants checks that every source on the page belongs to a number that still
// exists.
func TestSourcesAreOfConstants(t *testing.T) {
	page, err := os.ReadFile("../docs/decisions/0016-adaptive-search.md")
	if err != nil {
		t.Fatal(err)
	}
	all := numbersOf(t, "../search/rate/*.go")
	for piece := range sourced(string(page)) {
		if !slices.ContainsFunc(all, func(n number) bool { return n.coveredBy(map[string]bool{piece: true}) }) {
			t.Errorf("the page has a source for %s, but the search has no such number", piece)
		}
	}
}

// sourced returns the code in the first column of the page's tables of sources.
func sourced(page string) map[string]bool {
	_, section, _ := strings.Cut(page, "## Constants with a source\n")
	section, _, _ = strings.Cut(section, "\n## ")
	known := map[string]bool{}
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		for _, span := range regexp.MustCompile("`[^`]+`").FindAllString(cells[1], -1) {
			known[strings.Trim(span, "`")] = true
		}
	}
	return known
}

// A number is a literal in the source of the search. 0 and 1 count only as the value of a constant
// or variable.
type number struct {
	file, text     string
	line, at       int    // at is the offset in text
	function, name string // name of the constant or variable, FUNCTION.NAME if it is local; empty: in an expression
	value          string
}

// coveredBy reports whether a source on the page or an ablation covers the number.
func (n number) coveredBy(known map[string]bool) bool {
	if n.name != "" {
		return known[n.name]
	}
	if known[n.function+"()"] {
		return true
	}
	for piece := range known {
		if strings.ContainsAny(piece, " (/*") && n.within(piece) {
			return true
		}
	}
	return slices.ContainsFunc(append(tried(), rules()...), func(a ablation) bool { return a.file == n.file && n.within(a.old) })
}

// within reports whether the number is part of the piece of source text.
func (n number) within(piece string) bool {
	around := n.text[max(0, n.at-len(piece)+1):min(len(n.text), n.at+len(piece))]
	return strings.Contains(around, piece)
}

// numbersOf returns the numbers of the files that match the pattern, without tests.
func numbersOf(t *testing.T, pattern string) (all []number) {
	files, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := parser.ParseFile(set, file, text, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			for _, n := range numbersIn(d) {
				at := set.Position(n.at)
				all = append(all, number{filepath.Base(file), string(text), at.Line, at.Offset, n.function, n.name, n.value})
			}
		}
	}
	return all
}

// A literal is a number whose line is not known yet.
type literal struct {
	at                    token.Pos
	function, name, value string
}

// numbersIn returns the numbers of a declaration.
func numbersIn(d ast.Decl) (all []literal) {
	function, prefix := "", ""
	if f, ok := d.(*ast.FuncDecl); ok {
		function, prefix = f.Name.Name, f.Name.Name+"."
	}
	add := func(n ast.Node, name string) bool {
		l, ok := n.(*ast.BasicLit)
		if ok && (l.Kind == token.INT || l.Kind == token.FLOAT) && (name != "" || !slices.Contains([]string{"0", "0.0", "1"}, l.Value)) {
			all = append(all, literal{l.Pos(), function, name, l.Value})
		}
		return true
	}
	ast.Inspect(d, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return add(n, "")
		}
		for i, value := range spec.Values {
			ast.Inspect(value, func(n ast.Node) bool { return add(n, prefix+spec.Names[i].Name) })
		}
		return false
	})
	return all
}

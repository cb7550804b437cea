// Package bpftest checks committed BPF objects.
package bpftest

import (
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// CompiledFrom checks, without a compiler, that the C file has not changed since the BPF object was compiled
// from it. The object has the number and text of the source line of each instruction. A change of a macro or
// a map that moves no line is not found.
func CompiledFrom(t testing.TB, object *ebpf.CollectionSpec, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines, compared := strings.Split(string(text), "\n"), 0
	for name, program := range object.Programs {
		for _, ins := range program.Instructions {
			line, known := ins.Source().(*btf.Line)
			if !known || line.LineNumber() == 0 { // made by the compiler
				continue
			}
			if n := int(line.LineNumber()); n > len(lines) || lines[n-1] != line.Line() {
				t.Fatalf("%s:%d: the object has the line %q in %s: run make generate", file, n, line.Line(), name)
			}
			compared++
		}
	}
	if compared == 0 {
		t.Errorf("the object of %s has no source lines", file)
	}
}

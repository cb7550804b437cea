package spec

import (
	"os"
	"path/filepath"
	"testing"

	"vitrine/document"
)

// seed adds every file of testdata that matches a pattern.
func seed(f *testing.F, patterns ...string) {
	for _, pattern := range patterns {
		files, err := filepath.Glob(filepath.Join("testdata", pattern))
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range files {
			raw, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(raw)
		}
	}
}

// FuzzDeployment checks that a file is either refused with ordered positions,
// or gives a deployment whose methods return consistent results.
func FuzzDeployment(f *testing.F) {
	seed(f, "good/ims.*", "bad/deployment-*.yaml")
	schema, err := deploymentSchema(known())
	if err != nil {
		f.Fatal(err)
	}
	c, err := document.Compile(schema, Formats()...)
	if err != nil {
		f.Fatal(err)
	}
	read := func(raw []byte) (*Deployment, error) {
		file, err := document.Parse("testdata/good/fuzz.yaml", raw, anyKind)
		if err != nil {
			return nil, err
		}
		return decodeDeployment(file, c)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		d, err := read(raw)
		if err != nil {
			onlyBadInput(t, err)
			return
		}
		if len(d.Order()) != len(d.Components) || len(d.Servers.Choices()) == 0 {
			t.Errorf("%d components in order, %d choices", len(d.Order()), len(d.Servers.Choices()))
		}
		if c, port := d.Entry(); c == nil || port == 0 {
			t.Error("no entry")
		}
		sizings := d.Sizings()
		if d.Mode.Name != Custom {
			sizings = append(sizings, d.Space().Smallest())
		}
		if len(sizings) == 0 {
			t.Error("nothing to measure")
		}
		for _, s := range sizings {
			if err := d.CheckSizing(s); err != nil {
				t.Error(err)
			}
			if r := d.Resources(s); r.VCPUs <= 0 || r.Memory <= 0 || !r.Within(d.Total(s)) {
				t.Errorf("%s takes %v of %v", s, r, d.Total(s))
			}
		}
		again, err := read(raw)
		if err != nil || again.Digest != d.Digest {
			t.Errorf("read again: %v", err)
		}
	})
}

// FuzzWorkload checks that a file is either refused with ordered positions, or
// gives a valid workload.
func FuzzWorkload(f *testing.F) {
	seed(f, "good/calls.yaml", "bad/workload-*.yaml")
	f.Add([]byte("generator: sip\nrange: [50, 400]\nduration: 3s\n")) // only what is required
	schema, err := workloadSchema(known())
	if err != nil {
		f.Fatal(err)
	}
	c, err := document.Compile(schema, Formats()...)
	if err != nil {
		f.Fatal(err)
	}
	read := func(raw []byte) (*Workload, error) {
		file, err := document.Parse("testdata/good/fuzz.yaml", raw, anyKind)
		if err != nil {
			return nil, err
		}
		return decodeWorkload(file, c, known())
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		w, err := read(raw)
		if err != nil {
			onlyBadInput(t, err)
			return
		}
		if w.Increase < 0 || w.Search == Ramp && w.Increase == 0 {
			t.Errorf("accepted increase %g for search %s", w.Increase, w.Search)
		}
		if w.Range.Min() <= 0 || w.Range.Max() < w.Range.Min() || w.Duration <= 0 || w.Repeat < 1 || len(w.Thresholds) == 0 {
			t.Errorf("accepted %+v", w)
		}
		if holds := w.StopWhen(); holds != nil {
			holds(outcome())
		}
		if w.Program == "" {
			var p sip
			if err := w.Parameters.Decode(&p); w.Generator == "sip" && err != nil {
				t.Error(err)
			}
		} else if _, err := w.Parameters.Strings(); err != nil {
			t.Error(err)
		}
	})
}

package vitrine_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A level is a set of packages that may import each other. In a pattern, "x/..."
// matches x and all packages below it, "x/*" only those below it.
type level struct {
	name     string
	packages []string
}

// levels returns the levels from the highest to the lowest. A package may import
// its own level and lower ones. When several patterns fit a package, the longest
// counts, and among equally long ones the highest level.
// docs/architecture.md has the same table.
func levels() []level {
	return []level{
		{"edge", []string{"cmd/vitrine", "bench"}},
		{"compose", []string{"trial", "measure", "measure/chain", "flex/...", "report/...", "papers", "redline"}},
		{"place", []string{"testbed/..."}},
		{"do", []string{"affinity/...", "substrate/...", "fabric/...", "image/...", "load/...", "measure/...", "monitor", "reference/...", "director/...", "store/..."}},
		{"reach the kernel", []string{"internal/..."}},
		{"describe, decide, keep", []string{"document/...", "spec", "search/...", "result", "wire/...", "internal/durable", "flex/decide", "flex/policy", "flex/simulate", "flex/profile", "catalog"}},
		{"nouns", []string{"vitrine"}},
	}
}

// A rule restricts packages further than their level does. It does not apply to
// packages that support tests.
type rule struct {
	packages []string
	only     []string // packages of this module that they may import; nil: any
	never    []string // packages of this module that they must not import
	except   []string // packages among never that they may import
	outside  []string // packages of other modules and the standard library that they must not import
	because  string
}

func rules() []rule {
	world := []string{"os/...", "io/fs", "net", "net/http/...", "syscall", "log/...", "golang.org/x/sys/..."}
	backEnds := []string{"substrate/*", "fabric/*", "load/*"}
	instances := []string{"substrate/...", "fabric/...", "load/...", "monitor"}
	return []rule{
		{packages: []string{"document"}, only: []string{"vitrine"}, because: "it reads files of any kind"},
		{packages: []string{"spec"}, only: []string{"vitrine", "document"}, because: "a deployment is checked without what runs it"},
		{packages: []string{"result"}, only: []string{"vitrine", "internal/durable"}, because: "a run folder is read where nothing runs"},
		{packages: []string{"wire/..."}, only: []string{"wire/..."}, because: "message formats serve the director, generators and tests alike"},
		{packages: []string{"internal/..."}, only: []string{"vitrine", "internal/..."}, because: "they serve all back ends and know none"},

		{packages: []string{"search/..."}, only: []string{"vitrine", "search/..."}, because: "a search asks for rates and sizes, and knows nothing of what runs the trials"},
		{packages: []string{"search/..."}, outside: world, because: "a step depends on the history, the configuration and the seed alone: --resume asks the same questions again"},
		{packages: []string{"measure/delay", "director/table", "flex/decide"}, only: []string{"vitrine"}, outside: world, because: "it decides: callers hand it times and packets"},

		{packages: []string{"flex/policy", "flex/simulate"}, only: []string{"vitrine", "flex/decide", "flex/policy"}, outside: world, because: "they decide, or replay decisions in simulated time"},
		{packages: []string{"affinity/graph", "affinity/aggregate", "affinity/correlate", "affinity/course", "affinity/state"}, outside: world, because: "they decide: callers hand them messages or transactions"},
		{packages: []string{"report/..."}, never: append([]string{"trial", "measure/...", "testbed"}, instances...), because: "a report is made from a run folder alone, on any host"},
		{packages: []string{"trial", "measure", "measure/chain", "testbed", "papers"}, never: backEnds, because: "they know back ends by the contract alone: cmd/vitrine lists which there are"},
		{packages: []string{"flex/hold", "testbed/deploy"}, never: backEnds, because: "they know back ends by the contract alone: cmd/vitrine lists which there are"},
		{packages: []string{"flex"}, never: []string{"testbed/...", "flex/hold", "substrate/...", "fabric/...", "load/...", "monitor"}, because: "it runs instances by a Runner alone: a testbed is one, and Kubernetes may be another"},
		{packages: []string{"fabric/..."}, never: []string{"substrate/...", "image/...", "load/...", "monitor"}, because: "a fabric puts an interface into a network namespace, whatever runs there"},
		{packages: []string{"substrate/...", "image/..."}, never: []string{"load/...", "monitor"}, because: "a substrate runs any command"},
		{packages: []string{"load/..."}, never: []string{"substrate/...", "fabric/...", "image/...", "monitor"}, because: "a generator is an executable under a contract, wherever it runs"},
		{packages: []string{"monitor"}, never: []string{"substrate/...", "fabric/...", "load/...", "image/..."}, because: "a Vantage says where use can be read, whatever made the instance"},
		{packages: []string{"reference/..."}, never: append([]string{"director/...", "store/..."}, instances...), except: []string{"store/client"}, because: "a function that is measured knows nothing of what steers, drives or deploys it; its state may be in a store, behind the client"},
		{packages: []string{"affinity/..."}, only: []string{"vitrine", "affinity/...", "wire/...", "document", "spec", "internal/..."}, outside: []string{"net", "net/http/...", "syscall", "os/exec", "golang.org/x/sys/..."}, because: "it reads captures, call-flow files and, by internal/tap, interfaces: without what was captured"},
		{packages: []string{"director/..."}, never: append([]string{"store/...", "reference/...", "image/..."}, instances...), because: "the director runs for years, without the laboratory and the store"},
		{packages: []string{"redline"}, only: []string{"vitrine", "search/rate", "director/client"}, because: "it measures through directors alone, whatever runs the instances"},
		{packages: []string{"store/..."}, never: append([]string{"director/...", "reference/...", "image/..."}, instances...), because: "the store runs for years, without the laboratory and the director"},
		{packages: []string{"fabric/...", "substrate/...", "image/...", "load/...", "monitor", "reference/...", "director/...", "store/..."}, never: []string{"spec"}, because: "options are read with document: deployments are of those who compose"},
	}
}

// TestLevels checks that every package is in a level and imports nothing above it.
func TestLevels(t *testing.T) {
	for of, imports := range packages(t) {
		from := levelOf(of)
		if from < 0 {
			t.Errorf("%s is in no level: add it to levels in levels_test.go and to the table in docs/architecture.md", of)
			continue
		}
		for _, to := range imports.ours {
			if at := levelOf(to); at >= 0 && at < from {
				t.Errorf("%s (%s) imports %s (%s): nothing imports what is above it", of, levels()[from].name, to, levels()[at].name)
			}
		}
	}
}

// TestRules checks that no package breaks a rule that applies to it.
func TestRules(t *testing.T) {
	for of, imports := range packages(t) {
		if supportsTests(of) {
			continue
		}
		for _, r := range rules() {
			if !fits(of, r.packages) {
				continue
			}
			for _, to := range imports.ours {
				if r.only != nil && !fits(to, r.only) || fits(to, r.never) && !fits(to, r.except) {
					t.Errorf("%s imports %s: %s", of, to, r.because)
				}
			}
			for _, to := range imports.others {
				if fits(to, r.outside) {
					t.Errorf("%s imports %s: %s", of, to, r.because)
				}
			}
		}
		for _, to := range imports.ours {
			if supportsTests(to) {
				t.Errorf("%s imports %s: it is for tests alone", of, to)
			}
		}
	}
}

// decide returns the packages which only decide.
func decide() []string {
	return []string{
		"search/...", "measure/delay", "director/table", "flex/decide", "flex/policy", "flex/simulate",
		"affinity/graph", "affinity/aggregate", "affinity/correlate", "affinity/course", "affinity/state",
	}
}

// TestEveryPatternFitsAPackage checks that no level and no rule is about a package that was renamed or removed.
func TestEveryPatternFitsAPackage(t *testing.T) {
	names := slices.Collect(maps.Keys(packages(t)))
	patterns := decide()
	for _, l := range levels() {
		patterns = append(patterns, l.packages...)
	}
	for _, r := range rules() {
		patterns = slices.Concat(patterns, r.packages, r.only, r.never, r.except)
	}
	for _, pattern := range unique(patterns) {
		if !slices.ContainsFunc(names, func(name string) bool { return fits(name, []string{pattern}) }) {
			t.Errorf("no package fits %s, so what this file says about it checks nothing", pattern)
		}
	}
}

// TestDecisionsHaveNoClock checks that packages which only decide neither read the clock nor start goroutines.
func TestDecisionsHaveNoClock(t *testing.T) {
	clock := []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTicker", "NewTimer"}
	for of := range packages(t) {
		if supportsTests(of) || !fits(of, decide()) {
			continue
		}
		files, err := filepath.Glob(filepath.Join(of, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(parsed, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.GoStmt:
					t.Errorf("%s starts a goroutine", file)
				case *ast.SelectorExpr:
					if of, ok := n.X.(*ast.Ident); ok && of.Name == "time" && slices.Contains(clock, n.Sel.Name) {
						t.Errorf("%s uses time.%s: callers hand it times", file, n.Sel.Name)
					}
				}
				return true
			})
		}
	}
}

// TestNouns checks that the root package imports the standard library only,
// because every package imports the root package.
func TestNouns(t *testing.T) {
	nouns := packages(t)["vitrine"]
	for _, to := range slices.Concat(nouns.ours, nouns.others) {
		if domain, _, _ := strings.Cut(to, "/"); len(nouns.ours) > 0 || strings.Contains(domain, ".") {
			t.Errorf("the root package imports %s: it imports the standard library only", to)
		}
	}
}

// TestLevelsAreDocumented checks that the table in docs/architecture.md has the
// same packages in each level.
func TestLevelsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range levels() {
		documented := map[string]bool{}
		for _, row := range regexp.MustCompile(`(?m)^\| `+l.name+` \|([^|]*)\|`).FindAllStringSubmatch(string(text), -1) {
			for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
				documented[name[1]] = true
			}
		}
		if got := slices.Sorted(maps.Keys(documented)); !slices.Equal(got, slices.Sorted(slices.Values(l.packages))) {
			t.Errorf("docs/architecture.md has %s in level %q, levels_test.go has %s", got, l.name, l.packages)
		}
	}
}

// imported lists what a package imports: packages of this module, by their path
// relative to it, and others.
type imported struct{ ours, others []string }

// packages returns the imports of every package of this module, by the package's
// path relative to the module ("vitrine" for the root package). Test files do not
// count.
func packages(t *testing.T) map[string]imported {
	t.Helper()
	all := map[string]imported{}
	err := filepath.WalkDir(".", func(file string, entry fs.DirEntry, err error) error {
		hidden := file != "." && strings.HasPrefix(entry.Name(), ".")
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (hidden || entry.Name() == "testdata"):
			return filepath.SkipDir
		case path.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go"):
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		of := "vitrine"
		if folder := filepath.Dir(file); folder != "." {
			of = folder
		}
		imports := all[of]
		for _, spec := range parsed.Imports {
			name := strings.Trim(spec.Path.Value, `"`)
			if below, ours := strings.CutPrefix(name, "vitrine/"); ours || name == "vitrine" {
				imports.ours = append(imports.ours, below)
			} else {
				imports.others = append(imports.others, name)
			}
		}
		imports.ours, imports.others = unique(imports.ours), unique(imports.others)
		all[of] = imports
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func unique(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}

// levelOf returns the index of the package's level, or -1 when it is in no level.
func levelOf(name string) int {
	found, longest := -1, 0
	for i, l := range levels() {
		for _, pattern := range l.packages {
			if length := len(strings.TrimSuffix(pattern, "/...")); fits(name, []string{pattern}) && length > longest {
				found, longest = i, length
			}
		}
	}
	return found
}

// fits reports whether any pattern matches the package.
func fits(name string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		if above, ok := strings.CutSuffix(pattern, "/..."); ok {
			return name == above || strings.HasPrefix(name, above+"/")
		}
		if above, ok := strings.CutSuffix(pattern, "/*"); ok {
			return strings.HasPrefix(name, above+"/")
		}
		return name == pattern
	})
}

// supportsTests reports whether a package is for tests, or measures this product.
func supportsTests(name string) bool {
	return name == "bench" || slices.ContainsFunc(strings.Split(name, "/"), func(element string) bool { return strings.HasSuffix(element, "test") })
}

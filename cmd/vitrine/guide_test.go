package main

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"vitrine/spec"
)

// TestDockerExampleOfTheGuide checks the deployment of docs/files.md.
func TestDockerExampleOfTheGuide(t *testing.T) {
	page := filepath.Join("..", "..", "docs", "files.md")
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "```yaml\n")
	example, _, _ := strings.Cut(rest, "```")
	d, err := spec.ParseDeployment(page, []byte(example), knownBackends())
	if err != nil {
		t.Fatal(err)
	}
	c := dockerConfig()
	if err := d.Servers.Parts["docker"].Decode(&c); err != nil || len(c.Mounts) != 1 {
		t.Errorf("got the mounts %+v, error %v, want one mount", c.Mounts, err)
	}
}

// TestCommandsOfTheProductionPage checks that each command of docs/production.md exists, with its flags
// and its number of arguments.
func TestCommandsOfTheProductionPage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "production.md"))
	if err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile("(?:Exec[A-Za-z]+=|`)(?:/usr/local/bin/)?vitrine ([^`\n]+)").FindAllStringSubmatch(string(text), -1)
	if len(commands) < 4 {
		t.Fatalf("found %d commands, want those of three units", len(commands))
	}
	for _, command := range commands {
		c, rest, err := newRoot(io.Discard, io.Discard).Find(strings.Fields(command[1]))
		if err == nil {
			err = c.ParseFlags(rest)
		}
		if err == nil {
			err = c.ValidateArgs(c.Flags().Args())
		}
		if err != nil {
			t.Errorf("vitrine %s: %v", command[1], err)
		}
	}
}

// TestStoreUnitWaitsForTheClock checks that the store's unit of docs/production.md starts it after the
// clock is set. A store that starts while the clock is ahead deletes records.
func TestStoreUnitWaitsForTheClock(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "production.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "/vitrine-store.service\n")
	unit, _, _ := strings.Cut(rest, "```")
	if !regexp.MustCompile(`(?m)^After=.*\btime-sync\.target\b`).MatchString(unit) {
		t.Errorf("the store does not start after time-sync.target:\n%s", unit)
	}
}

// TestAlertsOfTheProductionPage checks that the alert rules of docs/production.md are rules, and that
// each metric in them stands in the code of its service.
func TestAlertsOfTheProductionPage(t *testing.T) {
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "docs", "production.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "```yaml\n")
	example, _, _ := strings.Cut(rest, "```")
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct{ Alert, Expr, For string }
		}
	}
	if err := yaml.Unmarshal([]byte(example), &file); err != nil || len(file.Groups) != 1 {
		t.Fatalf("got %d groups, error %v, want one group", len(file.Groups), err)
	}
	own := goText(t, filepath.Join(root, "internal", "vitals"))
	code := map[string]string{ // by the service in the metric's name
		"director": goText(t, filepath.Join(root, "director")) + own, "store": goText(t, filepath.Join(root, "store")) + own,
		"flex": goText(t, filepath.Join(root, "flex")) + own, ".+": own,
	}
	metric := regexp.MustCompile(`vitrine_(director|store|flex|\.\+)_(\w+)`)
	for _, rule := range file.Groups[0].Rules {
		if rule.Alert == "" || rule.Expr == "" {
			t.Errorf("got the rule %+v, want an alert and an expression", rule)
		}
		for _, m := range metric.FindAllStringSubmatch(rule.Expr, -1) {
			if of := code[m[1]]; !strings.Contains(of, `"`+m[2]+`"`) && !strings.Contains(of, `"`+m[0]+`"`) {
				t.Errorf("%s: no code has the metric %s", rule.Alert, m[0])
			}
		}
	}
}

// goText returns the text of the Go files below a folder, without tests.
func goText(t *testing.T, folder string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		all.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

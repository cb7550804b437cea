package spec

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vitrine"
)

// TestLoadOptions checks that an options file is read and refused as the same
// parts of a deployment are.
func TestLoadOptions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "options.yaml")
	for text, want := range map[string]string{
		"servers:\n  docker: {network: none}\n":         "",
		`{"servers": {"docker": {"network": "none"}}}`:  "",
		"servers:\n  docker: {network: nun}\n":          `2:21: servers.docker.network is "nun": did you mean none? allowed: host, none`,
		"servers:\n  dokcer: {}\n":                      "2:3: dokcer is not a field of servers: did you mean docker? allowed: docker, process",
		"servers:\n  docker: {}\n  substrate: docker\n": "3:3: substrate is not a field of servers: allowed: docker, process",
		"servers: {}\ncomponents: []\n":                 "2:1: components is not a field of the file: allowed: servers",
		"docker: {network: host}\n":                     "1:1: the file has no servers: add it: Options of back ends, by their names",
		"servers: [docker]\n":                           "1:10: servers is a list: want a mapping",
		"servers: {docker: {network: host}":             "1:1: did not find",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		parts, file, err := LoadOptions(path, known())
		if want != "" {
			if !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), path+":"+want) {
				t.Errorf("%q: %v, want %s", text, err, want)
			}
			continue
		}
		var into docker
		if err := parts["docker"].Decode(&into); err != nil || into.Network != "none" || string(file.Raw) != text {
			t.Errorf("%q: %+v, %v", text, into, err)
		}
		err = parts["docker"].Decode(&struct{ Net string }{})
		if err == nil || !strings.HasPrefix(err.Error(), path+":") || !strings.Contains(err.Error(), "network is not a field of servers.docker") {
			t.Errorf("%q, as what it is not: %v", text, err)
		}
	}
	if _, _, err := LoadOptions(path+".not", known()); !vitrine.IsBadInput(err) {
		t.Errorf("no file: %v", err)
	}
}

package config

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/invopop/jsonschema"

	"vitrine"
	"vitrine/affinity"
	"vitrine/document"
	"vitrine/spec"
)

//go:generate go test -run ^TestPublishedSchema$ . -update

// published is the schema, generated from the types of this package and their comments. It
// does not describe the sections of back ends.
//
//go:embed schema/flex.schema.json
var published []byte

// Kind is the name of this kind of file.
const Kind = "flex"

// Schema returns the JSON Schema (draft 2020-12) of the file, with the names and sections of
// the known back ends.
func Schema(known spec.Known) ([]byte, error) {
	s, err := schema(known)
	if err != nil {
		return nil, err
	}
	return document.Indent(s)
}

func schema(known spec.Known) (*jsonschema.Schema, error) {
	s := new(jsonschema.Schema)
	if err := json.Unmarshal(published, s); err != nil {
		return nil, fmt.Errorf("read the published schema: %w", err)
	}
	spec.DescribeServers(s.Definitions["Servers"], known)
	return s, nil
}

// formats returns the text formats that only this file uses.
func formats() []document.Format {
	return append(spec.Formats(), document.Format{Name: "url", Pattern: `^https?://[^/?#]+/?$`, Want: "want an address such as http://127.0.0.1:8070"})
}

// Load reads and checks the file at path, the deployments that it names, and their sizes. The
// error for a mistake in a file is a *vitrine.BadInput, or several of them joined.
func Load(path string, known spec.Known) (*Config, error) {
	file, err := document.Read(path, "an orchestrator's")
	if err != nil {
		return nil, err
	}
	return load(file, known)
}

// Parse is like Load, but takes the bytes of the file from the caller.
func Parse(path string, raw []byte, known spec.Known) (*Config, error) {
	file, err := document.Parse(path, raw, "an orchestrator's")
	if err != nil {
		return nil, err
	}
	return load(file, known)
}

func load(file document.File, known spec.Known) (*Config, error) {
	s, err := schema(known)
	if err != nil {
		return nil, err
	}
	compiled, err := document.Compile(s, formats()...)
	if err != nil {
		return nil, err
	}
	root := file.Root()
	c := &Config{File: file, Servers: spec.DefaultServers(), deployments: map[string]*spec.Deployment{}}
	if err := compiled.Decode(root, c); err != nil {
		return nil, err
	}
	for name := range c.Servers.Parts {
		c.Servers.Parts[name] = root.Sub("servers", name)
	}
	if err := c.loadDeployments(known); err != nil {
		return nil, err
	}
	if err := check(root, c); err != nil {
		return nil, err
	}
	c.resolve()
	return c, nil
}

// loadDeployments loads the deployments of all types. Types may share a deployment.
func (c *Config) loadDeployments(known spec.Known) error {
	for i := range c.Types {
		t := &c.Types[i]
		if c.deployments[t.Deployment] != nil {
			continue
		}
		d, err := spec.LoadDeployment(c.Resolve(t.Deployment), known)
		if err != nil {
			return errors.Join(c.BadInput("deployment "+document.Word(t.Deployment), "it must be a valid deployment; its errors follow", "types", fmt.Sprint(i), "deployment"), err)
		}
		c.deployments[t.Deployment] = d
	}
	return nil
}

// resolve makes the paths in the file absolute and sets the default of State.
func (c *Config) resolve() {
	if c.State == "" {
		c.State = filepath.Base(c.Path) + ".flex"
	}
	paths := []*string{&c.State, &c.Control.TokenFile, &c.Control.Certificate, &c.Control.Key, &c.Control.Clients}
	for i := range c.Directors {
		d := &c.Directors[i]
		d.Control = c.control(*d)
		paths = append(paths, &d.TokenFile, &d.Authorities, &d.Certificate, &d.Key)
	}
	if c.Store != nil {
		paths = append(paths, &c.Store.Authorities, &c.Store.Certificate, &c.Store.Key)
	}
	for i := range c.Types {
		for k := range c.Types[i].Flavors {
			paths = append(paths, &c.Types[i].Flavors[k].Profile)
		}
	}
	for _, p := range paths {
		if *p != "" {
			*p = c.Resolve(*p)
		}
	}
	var commands []spec.Args
	for _, s := range c.Services {
		commands = append(commands, s.Command)
	}
	if c.Store != nil && c.Store.Member != nil {
		commands = append(commands, c.Store.Member.Command)
	}
	for _, command := range commands {
		if strings.ContainsRune(command[0], '/') && !strings.Contains(command[0], "${") {
			command[0] = c.Resolve(command[0])
		}
	}
}

// control returns the control address of a director. The path of a unix socket is made absolute.
func (c *Config) control(d Director) string {
	if path, is := strings.CutPrefix(d.Control, "unix:"); is {
		return "unix:" + c.Resolve(path)
	}
	return d.Control
}

// membersOf returns the members of an aggregate in an analysis of vitrine affinity. name is
// the aggregate, or a transaction type that it serves, ignoring case.
func membersOf(path, name string) ([]string, error) {
	text, err := readAnalysis(path)
	if err != nil {
		return nil, &vitrine.BadInput{File: path, Found: err.Error(), Want: "want what vitrine affinity wrote"}
	}
	a, err := affinity.Parse(text)
	if err != nil {
		return nil, &vitrine.BadInput{File: path, Found: err.Error(), Want: "want what vitrine affinity --out wrote"}
	}
	var names []string
	for _, g := range a.Aggregates {
		for _, called := range append([]string{g.Name}, g.Types...) {
			if strings.EqualFold(called, name) {
				return g.Members, nil
			}
			names = append(names, called)
		}
	}
	slices.Sort(names)
	return nil, &vitrine.BadInput{File: path, Found: "no aggregate " + document.Word(name), Want: document.Choose(name, slices.Compact(names))}
}

// mostAnalysis is the size limit of an analysis, in bytes.
const mostAnalysis = 64 << 20

func readAnalysis(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // opened for reading
	return io.ReadAll(io.LimitReader(f, mostAnalysis))
}

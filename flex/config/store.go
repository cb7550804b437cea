package config

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"vitrine/document"
	"vitrine/spec"
)

// A Store says where a store is, and how to authenticate there and at its members.
type Store struct {
	URL         string       `yaml:"url" jsonschema:"required,format=url,example=http://127.0.0.1:8070"` // Address of the store; its /health is read, which needs no token.
	Authorities string       `yaml:"authorities"`                                                        // PEM file: the authorities that certify the store.
	Certificate string       `yaml:"certificate"`                                                        // PEM file: the certificate to show, which a store with --client-ca needs.
	Key         string       `yaml:"key"`                                                                // PEM file: the certificate's key.
	Member      *StoreMember `yaml:"member"`                                                             // How to start a further store over the same Redis or etcd while operations are too slow; left out: an alert says what to do.
}

// A StoreMember says how to start further stores over the Redis or etcd of the first one, when to
// start them, and when to stop them. ${VITRINE_NUMBER} in url, command and environment is the
// member's number, counted from 1.
type StoreMember struct {
	URL         string           `yaml:"url" jsonschema:"required,format=url,example=http://127.0.0.1:807${VITRINE_NUMBER}"` // Address of the member. Clients name the addresses of all members beside that of the first store.
	Command     spec.Args        `yaml:"command" jsonschema:"required"`                                                      // Program and arguments, as in services, with ${VITRINE_NUMBER}.
	Environment document.Strings `yaml:"environment"`                                                                        // Environment of the command.
	Max         int              `yaml:"max" jsonschema:"minimum=1,maximum=16,default=1"`                                    // Most members beside the first store.
	After       time.Duration    `yaml:"after" jsonschema:"format=positive-duration,default=30s"`                            // How long operations must be past their threshold before a member starts.
	Stable      time.Duration    `yaml:"stable" jsonschema:"format=positive-duration,default=10m"`                           // How long all operations must be within their threshold before a member is stopped.
}

// UnmarshalYAML decodes the section on top of its defaults.
func (m *StoreMember) UnmarshalYAML(n *yaml.Node) error {
	type plain StoreMember
	*m = StoreMember{Max: 1, After: 30 * time.Second, Stable: 10 * time.Minute}
	return n.Decode((*plain)(m))
}

const (
	// memberPrefix begins the names of the services that are members of the store.
	memberPrefix   = "store-member-"
	numberVariable = "VITRINE_NUMBER"
)

// numbered replaces the variable of the member's number. Other variables stay.
func numbered(text string, n int) string {
	return strings.ReplaceAll(text, "${"+numberVariable+"}", strconv.Itoa(n))
}

// URLOf returns the address of the n-th member, counted from 1.
func (m *StoreMember) URLOf(n int) string { return numbered(m.URL, n) }

// Service returns the n-th member, counted from 1, as a service.
func (m *StoreMember) Service(n int) Service {
	s := Service{Name: memberPrefix + strconv.Itoa(n), Environment: document.Strings{}}
	for _, argument := range m.Command {
		s.Command = append(s.Command, numbered(argument, n))
	}
	for name, value := range m.Environment {
		s.Environment[name] = numbered(value, n)
	}
	return s
}

// storeMember checks the members of the store.
func (v *validator) storeMember(c *Config) {
	for i, s := range c.Services {
		if strings.HasPrefix(s.Name, memberPrefix) {
			v.Bad(s.Name, "names that begin with "+memberPrefix+" are those of store.member: choose another one", "services", i, "name")
		}
	}
	if c.Store == nil || c.Store.Member == nil {
		return
	}
	m := c.Store.Member
	at := func(path ...any) []any { return append([]any{"store", "member"}, path...) }
	v.references(m.URL, []string{numberVariable}, at("url")...)
	v.command(m.Command, m.Environment, []string{"VITRINE_DIR", numberVariable, "VITRINE_SPEC"}, at)
	for n := 1; n <= m.Max; n++ {
		if strings.TrimRight(m.URLOf(n), "/") == strings.TrimRight(c.Store.URL, "/") {
			v.Bad(fmt.Sprintf("member %d has the address of the first store", n), "want an address of its own", at("url")...)
			break
		}
	}
	if m.Max > 1 && m.URLOf(1) == m.URL {
		v.Bad(fmt.Sprintf("one address for %d members", m.Max), "want ${VITRINE_NUMBER} in the address", at("url")...)
	}
	if ownRecords(m.Command) {
		v.Bad("a store with the engine embedded", "its records would not be those of the first store: give --engine redis or --engine etcd", at("command")...)
	}
}

// ownRecords reports whether a command runs a store of this program over the engine embedded,
// which shares its records with no other store.
func ownRecords(command []string) bool {
	if filepath.Base(command[0]) != "vitrine" {
		return false
	}
	engine := "embedded"
	for i, argument := range command {
		if value, is := strings.CutPrefix(argument, "--engine="); is {
			engine = value
		}
		if argument == "--engine" && i+1 < len(command) {
			engine = command[i+1]
		}
	}
	return engine == "embedded"
}

package config

import (
	"fmt"
	"maps"
	"slices"

	"vitrine"
	"vitrine/document"
)

// impairPart is the name of the servers part with the impaired links.
const impairPart = "impair"

// impairment checks the names in servers.impair and servers.impairment. A name that no link has
// would impair nothing.
func (v *validator) impairment(c *Config) {
	var given map[string]any
	if err := c.Servers.Parts[impairPart].Decode(&given); err != nil {
		v.Add(err)
		return
	}
	members := c.MemberNames()
	v.links(given, members, "servers", impairPart)
	variants, _ := given["variants"].(map[string]any)
	for name, of := range variants {
		variant, _ := of.(map[string]any)
		v.links(variant, members, "servers", impairPart, "variants", name)
	}
	for _, name := range c.Servers.Impairment {
		if _, known := variants[name]; !known {
			v.Bad("no variant "+document.Word(name)+" in servers.impair", document.Choose(name, slices.Sorted(maps.Keys(variants))), "servers", "impairment")
		}
	}
}

// links checks the names in a part with links and peers. path leads to the part.
func (v *validator) links(part map[string]any, members []string, path ...any) {
	at := func(more ...any) []any { return slices.Concat(path, more) }
	peers, _ := part["peers"].([]any)
	for i, peer := range peers {
		if found, want := unlinked(fmt.Sprint(peer), members); found != "" {
			v.Bad(found, want, at("peers", i)...)
		}
	}
	links, _ := part["links"].(map[string]any)
	for name, of := range links {
		if found, want := unlinked(name, members); found != "" {
			v.BadName(found, want, at("links", name)...)
		}
		link, _ := of.(map[string]any)
		v.links(link, members, at("links", name)...)
	}
}

// unlinked returns the error for a name in servers.impair. found is empty if the name is that of a
// member. The names of instances are refused, because they change with the load: voice-3-sprout-1
// is a sprout of the third instance of type voice.
func unlinked(name string, members []string) (found, want string) {
	if slices.Contains(members, name) {
		return "", ""
	}
	if c := vitrine.ComponentOf(name); slices.Contains(members, c) {
		return "instance " + document.Word(name), fmt.Sprintf("instances come and go with the load, so links are named by component: want %s, which is the link of each %s", c, c)
	}
	return "no member " + document.Word(name), document.Choose(name, members)
}

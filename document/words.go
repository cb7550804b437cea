package document

import (
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Word formats a name from a file for a message. It quotes and shortens unusual
// names, so that no name can imitate another message.
func Word(name string) string {
	if len(name) > 0 && len(name) <= 60 && !strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' }) {
		return name
	}
	return Quote(name)
}

// Quote quotes text from a file for a message, and shortens text of more than 60
// characters.
func Quote(text string) string {
	if r := []rune(text); len(r) > 60 {
		text = string(r[:57]) + "..."
	}
	return strconv.Quote(text)
}

// describeValue describes the value of a node in a few words.
func describeValue(n *yaml.Node) string {
	switch {
	case n == nil:
		return "nothing"
	case n.Kind == yaml.MappingNode && len(n.Content) == 0:
		return "an empty mapping"
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode && len(n.Content) == 0:
		return "an empty list"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.ShortTag() == "!!null":
		return "empty"
	}
	if n.ShortTag() == "!!str" {
		return Quote(n.Value)
	}
	return Word(n.Value)
}

// Choose returns a hint that lists the allowed names and suggests the one nearest
// to given.
func Choose(given string, allowed []string) string {
	if len(allowed) == 0 {
		return "none is allowed here"
	}
	list := "allowed: " + strings.Join(allowed, ", ")
	if near := nearest(given, allowed); near != "" {
		return fmt.Sprintf("did you mean %s? %s", near, list)
	}
	return list
}

// nearest returns the allowed name that the user most likely meant, or "" if no
// name is close.
func nearest(given string, allowed []string) string {
	if len(given) > 64 {
		return ""
	}
	best, least := "", len(given)/3+2
	for _, name := range allowed {
		d := distance(given, name)
		if len(given) >= 3 && strings.HasPrefix(name, given) || len(name) >= 3 && strings.HasPrefix(given, name) {
			d = 1 // an abbreviation, or something appended
		}
		if d < least && d < len(name) {
			best, least = name, d
		}
	}
	return best
}

// distance returns the Levenshtein distance: the number of inserted, deleted and
// substituted bytes that turn a into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

package substrate

import (
	"slices"
	"strings"
)

// MergeEnvironment joins lists of "KEY=value" variables. When a name occurs more than once,
// the last value wins and keeps the position of the first.
func MergeEnvironment(lists ...[]string) []string {
	at := make(map[string]int)
	var merged []string
	for _, variable := range slices.Concat(lists...) {
		name, _, _ := strings.Cut(variable, "=")
		if i, ok := at[name]; ok {
			merged[i] = variable
			continue
		}
		at[name] = len(merged)
		merged = append(merged, variable)
	}
	return merged
}

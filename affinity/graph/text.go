package graph

import (
	"strconv"
	"strings"
)

// quote writes a name as a quoted identifier of DOT.
func quote(name string) string {
	return `"` + strings.ReplaceAll(strings.ReplaceAll(name, `\`, `\\`), `"`, `\"`) + `"`
}

// number writes a mean count with at most one decimal.
func number(v float64) string {
	return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0")
}

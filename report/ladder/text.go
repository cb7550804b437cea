package ladder

import (
	"math"
	"strconv"
	"strings"
)

// number writes a mean count with at most two decimals.
func number(v float64) string {
	return strconv.FormatFloat(math.Round(v*100)/100, 'f', -1, 64)
}

func percent(share float64) string {
	return strconv.FormatFloat(math.Round(share*100), 'f', -1, 64) + "%"
}

func join(names []string) string { return strings.Join(names, ", ") }

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

// millis writes a time in milliseconds with at most two decimals. Below 1 ms it has three, because times are
// known to 1 us.
func millis(ms float64) string {
	if math.Abs(ms) < 1 {
		return strconv.FormatFloat(math.Round(ms*1000)/1000, 'f', -1, 64)
	}
	return number(ms)
}

func percent(share float64) string {
	return strconv.FormatFloat(math.Round(share*100), 'f', -1, 64) + "%"
}

func join(names []string) string { return strings.Join(names, ", ") }

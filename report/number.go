package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"vitrine"
	"vitrine/result"
)

// missing stands for unknown values.
const missing = "–"

// number formats a number with about three digits, the precision of a capacity. A number below 0.1
// has two digits, at most nine after the decimal point.
func number(v float64) string {
	digits := 2
	switch a := math.Abs(v); {
	case a >= 100 || a == math.Trunc(a):
		digits = 0
	case a >= 10:
		digits = 1
	case a < 0.1:
		digits = min(9, 1-int(math.Floor(math.Log10(a))))
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}

// shortest formats a number without rounding.
func shortest(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// tidy formats a number without binary rounding errors: 0.1+0.2 is 0.3.
func tidy(v float64) string { return shortest(math.Round(v*1e9)/1e9 + 0) } // + 0: no -0

func percent(share float64) string { return number(math.Round(share*100)) + "%" }

// byteCount formats bytes in binary units, as flavors do.
func byteCount(n int64) string {
	if n == 0 {
		return missing
	}
	v, units := float64(n), []string{"B", "KiB", "MiB", "GiB", "TiB"}
	for v >= 1024 && len(units) > 1 {
		v, units = v/1024, units[1:]
	}
	return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0") + " " + units[0]
}

// capacityText formats the capacity, with < or ≥ if it was not enclosed.
func capacityText(c vitrine.Capacity) string {
	switch {
	case c.Unmeasured():
		return missing
	case c.Censored == vitrine.CensoredBelow:
		return "< " + number(c.Rate)
	case c.Censored == vitrine.CensoredAbove, c.Censored == vitrine.CensoredGenerator:
		return "≥ " + number(c.Rate)
	}
	return number(c.Rate)
}

// sure returns the confidence of the capacities' intervals as a prefix of the word interval: "95%
// ". It is empty if a search claims no confidence, or if runs differ.
func (s *set) sure() string {
	var kinds []string
	for _, r := range s.runs {
		if r.Summary == nil {
			continue
		}
		for _, z := range r.Summary.Sizings {
			kinds = append(kinds, sureOf(z.Search))
		}
	}
	switch slices.Sort(kinds); len(slices.Compact(kinds)) {
	case 0:
		return sureOf(nil)
	case 1:
		return kinds[0]
	}
	return ""
}

func sureOf(s *result.Search) string {
	if s == nil {
		return "95% "
	}
	if claimed := s.Claimed(); claimed > 0 {
		return fmt.Sprintf("%.4g%% ", 100*claimed)
	}
	return ""
}

// oneDeployment says that the run's intervals rest on one deployment of each size. It is empty if
// they do not.
func (r *run) oneDeployment() string {
	single := func(z result.Sizing) bool { return z.Search.OneDeployment() }
	if r.Summary == nil || !slices.ContainsFunc(r.Summary.Sizings, single) {
		return ""
	}
	return "one deployment of each size (repeat: 1): the interval does not cover how fresh deployments differ"
}

// intervalText formats the interval in words.
func intervalText(c vitrine.Capacity) string {
	switch low, high := c.Bounds(); {
	case c.Unmeasured():
		return "no valid trial"
	case math.IsInf(high, 1):
		return "from " + number(low) + " up"
	default:
		return number(low) + " to " + number(high)
	}
}

// deploymentsText describes how fresh deployments differ. It is empty if the search did not
// distinguish deployments.
func deploymentsText(c vitrine.Capacity, unit string) string {
	if c.Deployments == 0 || c.Censored != vitrine.CensoredNone {
		return ""
	}
	text := fmt.Sprintf("%d deployments, standard deviation %s %s", c.Deployments, number(c.SD), unit)
	if c.Single > 0 {
		text += fmt.Sprintf("; a new deployment carries %s %s with 90%% probability", number(c.Single), unit)
	}
	if kinds := kindsText(c, unit); kinds != "" {
		text += "; " + kinds
	}
	return text
}

// kindsText describes two kinds of deployments, and what an overload does to deployments. It is
// empty if the search found neither.
func kindsText(c vitrine.Capacity, unit string) string {
	if c.Censored != vitrine.CensoredNone {
		return ""
	}
	var parts []string
	if st := c.States; st != nil {
		parts = append(parts, fmt.Sprintf("there are two kinds, with %s and %s %s; %s (%s to %s) are of the lower kind, whose capacity counts",
			number(st.Lower), number(st.Upper), unit, percent(st.Share), percent(st.ShareLow), percent(st.ShareHigh)))
	}
	if c.Fresh > 0 {
		parts = append(parts, fmt.Sprintf("before an overload they carry %s %s, and the lower capacity counts", number(c.Fresh), unit))
	}
	return strings.Join(parts, "; ")
}

// censoredText returns why a capacity was not enclosed. It is empty if the capacity was enclosed.
func censoredText(c vitrine.Capacity, unit string) string {
	switch {
	case c.Unmeasured():
		return "no trial was valid"
	case c.Censored == vitrine.CensoredBelow:
		return fmt.Sprintf("even the lowest rate tried, %s %s, failed", number(c.Rate), unit)
	case c.Censored == vitrine.CensoredAbove:
		return fmt.Sprintf("even the highest rate tried, %s %s, passed", number(c.Rate), unit)
	case c.Censored == vitrine.CensoredGenerator:
		return fmt.Sprintf("no trial above %s %s was valid: the table of trials says why", number(c.Rate), unit)
	}
	return ""
}

// unknown is the relation of capacities that cannot be compared.
const unknown = "unknown"

// relation compares a with b: "tied" when their intervals overlap, "higher" or
// "lower" when they do not, unknown when either was not measured.
func relation(a, b vitrine.Capacity) string {
	if a.Unmeasured() || b.Unmeasured() {
		return unknown
	}
	aLow, aHigh := a.Bounds()
	bLow, bHigh := b.Bounds()
	switch {
	case aLow > bHigh:
		return "higher"
	case aHigh < bLow:
		return "lower"
	}
	return "tied"
}

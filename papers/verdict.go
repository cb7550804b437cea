package papers

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A Verdict is the result of a claim on this host: one for its order and one for
// its quantity.
type Verdict struct {
	Claim
	Order    string `json:"order,omitempty"`    // Holds, Tied, Contrary, NotJudged; empty: no order is claimed
	Quantity string `json:"quantity,omitempty"` // Agrees, Open, Differs, NotJudged; empty: no quantity is claimed
	Why      string `json:"why,omitempty"`      // reason for NotJudged
	Ratio    *Ratio `json:"ratio,omitempty"`    // More / Less, or Value, as measured
	Figures  string `json:"figures,omitempty"`  // the readings with their intervals

	logs []float64 // logarithm of the ratio in each turn; nil: not measured in turns
}

// Results of a Verdict.
const (
	Holds     = "holds"      // the whole interval of the ratio is as stated
	Tied      = "tied"       // the interval lies on both sides
	Contrary  = "contrary"   // the whole interval is the other way
	Agrees    = "agrees"     // the interval holds the paper's figure, or the paper's span holds the interval
	Open      = "open"       // the interval holds the paper's figure, but does not decide
	Differs   = "differs"    // the interval does not hold the paper's figure
	NotJudged = "not judged" // Why has the reason
	NoClaim   = "no claim"   // the paper claims nothing
)

// bounded is the reason for not judging the quantity of a capacity outside the rates that were tried.
const bounded = "a quantity is only bounded"

// widest is the largest ratio of an interval's ends that still determines a
// quantity.
const widest = 2

// Judge compares the readings with the paper's statements. refused says why
// nothing of the run may be judged; empty: it may be judged.
func (e Exhibit) Judge(r Readings, refused string) []Verdict {
	list := make([]Verdict, 0, len(e.Claims))
	for _, c := range e.Claims {
		v := c.judge(r)
		if refused != "" {
			v.Why = refused
			for _, result := range []*string{&v.Order, &v.Quantity} {
				if *result != "" && *result != NoClaim {
					*result = NotJudged
				}
			}
		}
		list = append(list, v)
	}
	return list
}

// judge judges each instance of the claim and joins them. The quantity is judged by the geometric
// mean, so only if it is judged for each instance. If all were measured in the same turns, each turn
// gives one mean.
func (c Claim) judge(r Readings) Verdict {
	instances, of := c.instances(r)
	if len(instances) == 1 {
		v := instances[0].judgeOne(r)
		v.Claim = c
		return v
	}
	all := Verdict{Claim: c}
	var figures, reasons []string
	var ratios []Ratio
	var logs [][]float64
	judged := c.Paper != nil
	for i, x := range instances {
		v := x.judgeOne(r)
		if badness(v.Order) > badness(all.Order) {
			all.Order = v.Order
		}
		judged = judged && v.Quantity != NotJudged
		logs = append(logs, v.logs)
		text := of[i] + ": "
		if v.Ratio != nil {
			ratios = append(ratios, *v.Ratio)
			text += v.Ratio.String() + ", "
		}
		results := slices.Compact([]string{v.Order, v.Quantity}) // both may be NotJudged
		figures = append(figures, text+strings.TrimSpace(strings.Join(results, " ")))
		if v.Why != "" && !slices.Contains(reasons, v.Why) {
			reasons = append(reasons, v.Why)
		}
	}
	all.Figures, all.Why = strings.Join(figures, "; "), strings.Join(reasons, "; ")
	switch {
	case judged:
		mean, ok := averageInTurns(logs)
		if !ok {
			mean = average(ratios)
		}
		all.Ratio, all.Quantity = &mean, c.quantity(mean)
	case c.Paper != nil:
		all.Quantity = NotJudged
	}
	return all
}

// badness ranks orders: one contrary instance refutes a claim about all
// instances.
func badness(order string) int {
	return slices.Index([]string{"", NoClaim, Holds, Tied, NotJudged, Contrary}, order)
}

// judgeOne judges a claim without a *.
func (c Claim) judgeOne(r Readings) Verdict {
	v := Verdict{Claim: c}
	found := map[string]Reading{}
	var figures, reasons []string
	for _, name := range c.names() {
		x, missing := r.read(name)
		if missing == "" {
			figures = append(figures, x.figure(name))
			missing = x.unfit()
		}
		if missing != "" {
			reasons = append(reasons, subject(name)+": "+missing)
		}
		found[name] = x
	}
	v.Figures = strings.Join(figures, ", ")
	v.Why = cmp.Or(strings.Join(slices.Compact(reasons), "; "), c.otherDatapath(found))
	if v.Why != "" {
		v.refuse()
		return v
	}
	if c.Value != "" {
		x := found[c.Value]
		if x.Bound != "" {
			v.Quantity, v.Why = NotJudged, bounded
			return v
		}
		v.Ratio = &Ratio{x.Mean, x.Low, x.High}
		v.Quantity = c.quantity(*v.Ratio)
		return v
	}
	v.compare(found[c.Less], found[c.More])
	return v
}

// otherDatapath returns why the claim is not judged if it compares Open vSwitch in user space with anything
// else: that datapath is not the paper's, and would decide the claim. Empty: the claim may be judged.
func (c Claim) otherDatapath(found map[string]Reading) string {
	if found[c.Less].netdev && found[c.More].netdev {
		return ""
	}
	for _, name := range c.names() {
		if found[name].netdev {
			return subject(name) + ": Open vSwitch in user space: not comparable"
		}
	}
	return ""
}

// refuse marks everything that is claimed as not judged.
func (v *Verdict) refuse() {
	switch {
	case v.Free:
		v.Order = NoClaim
	case v.Value == "":
		v.Order = NotJudged
	}
	if v.Paper != nil {
		v.Quantity = NotJudged
	}
}

// compare judges by the interval of the ratio or, if a quantity is not positive,
// by the interval of the difference.
func (v *Verdict) compare(less, more Reading) {
	x, ok := ratio(less, more)
	if ok {
		v.Ratio, v.logs = &x, logRatios(less.Turns, more.Turns)
	}
	switch {
	case v.Free:
		v.Order = NoClaim
	case v.Within > 0 && !ok:
		v.Order, v.Why = NotJudged, "a ratio of a quantity that is not positive"
	case v.Within > 0:
		v.Order = alike(x, v.Within)
	case ok:
		v.Order = order(x, 1)
	default:
		v.Order = order(difference(less, more), 0)
	}
	switch {
	case v.Paper == nil:
	case !ok:
		v.Quantity, v.Why = NotJudged, "a ratio of a quantity that is not positive"
	case less.Bound != "" || more.Bound != "":
		v.Quantity, v.Why = NotJudged, bounded
	default:
		v.Quantity = v.quantity(x)
	}
}

// order judges whether the interval is above the limit.
func order(x Ratio, limit float64) string {
	switch {
	case x.Low > limit:
		return Holds
	case x.High < limit:
		return Contrary
	}
	return Tied
}

// alike judges whether the ratio is within the factor of 1, either way.
func alike(x Ratio, factor float64) string {
	switch {
	case x.Low >= 1/factor && x.High <= factor:
		return Holds
	case x.High < 1/factor || x.Low > factor:
		return Contrary
	}
	return Tied
}

// quantity compares the interval with the paper's figure. An interval of a ratio
// that also holds 1 (no difference) does not confirm a difference.
func (c Claim) quantity(x Ratio) string {
	p := c.Paper
	figure := p.Low == p.High
	none := c.Value == "" && x.Low <= 1 && x.High >= 1 && (p.Low > 1 || p.High < 1)
	switch {
	case x.High < p.Low || x.Low > p.High:
		return Differs
	case none || x.High > widest*x.Low:
		return Open
	case figure || x.Low >= p.Low && x.High <= p.High:
		return Agrees
	}
	return Open
}

// subject returns the subject of a reading.
func subject(name string) string {
	beside, rest, ok := strings.Cut(name, ": ")
	if !ok {
		beside, rest = "", name
	}
	where, _, _ := strings.Cut(rest, " ")
	if ok {
		return fmt.Sprintf("%s of %s", where, beside)
	}
	return where
}

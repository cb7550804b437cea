package papers

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// A Table is how an exhibit shows what was measured.
type Table struct {
	Columns []string `yaml:"columns" json:"columns"` // names of figures, without what they are of
	Rows    []Row    `yaml:"rows" json:"rows"`
}

// A Row is a row of a Table.
type Row struct {
	On     string     `yaml:"on" json:"on"`                   // "docker/bridge"
	Stands string     `yaml:"stands" json:"stands,omitempty"` // what of the paper it stands for, where that is something else
	Paper  []*float64 `yaml:"paper" json:"paper"`             // the paper's figures in the columns' order, as far as it gives them
}

// A Relation is one statement of the paper: one figure against another.
type Relation struct {
	Claim string `yaml:"claim" json:"claim"` // in words, with the section
	// Less and More name figures, as of Readings, or are numbers. A name that ends
	// in @* is of every frame size of the exhibit, and all must be so.
	Less   string  `yaml:"less" json:"less"`
	More   string  `yaml:"more" json:"more"`
	Factor float64 `yaml:"factor" json:"factor_in_paper"`  // more / less in the paper; 0: not said
	Within float64 `yaml:"within" json:"within,omitempty"` // above 0: the two are alike, at most this factor apart
}

// A Finding is what this host says about a relation.
type Finding struct {
	Relation
	Result string   `json:"result"` // Holds, Tied, Contrary, Unmeasured
	Ratio  *float64 `json:"factor"` // more / less as measured, the mean over sizes; nil when not
	Detail string   `json:"detail"` // both figures with their intervals, or why there are none
}

// JudgeReadings holds what was measured against what the paper states.
func (e Exhibit) JudgeReadings(r Readings) []Finding {
	list := make([]Finding, 0, len(e.Orderings))
	for _, o := range e.Orderings {
		list = append(list, o.judge(r, e.frames))
	}
	return list
}

const everySize = "@*"

// judge judges at every size and takes the worst of what it finds.
func (o Relation) judge(r Readings, sizes []int) Finding {
	if !strings.HasSuffix(o.Less, everySize) {
		return o.judgeOne(r)
	}
	all := Finding{Relation: o}
	var details []string
	logs, count := 0.0, 0
	for _, size := range sizes {
		at := o
		at.Less = strings.TrimSuffix(o.Less, everySize) + fmt.Sprintf("@%d", size)
		at.More = strings.TrimSuffix(o.More, everySize) + fmt.Sprintf("@%d", size)
		f := at.judgeOne(r)
		if f.Result == Unmeasured && f.Detail == all.Detail {
			continue // for the same reason
		}
		if badness(f.Result) >= badness(all.Result) {
			all.Result = f.Result
		}
		if f.Ratio != nil {
			logs, count = logs+math.Log(*f.Ratio), count+1
			details = append(details, fmt.Sprintf("%d bytes: %.3g, %s", size, *f.Ratio, f.Result))
			continue
		}
		all.Detail = f.Detail
		details = append(details, f.Detail)
	}
	if count > 0 {
		all.Ratio = new(math.Exp(logs / float64(count)))
	}
	all.Detail = strings.Join(details, "; ")
	return all
}

func badness(result string) int {
	return map[string]int{Holds: 1, Tied: 2, Contrary: 3, Unmeasured: 4}[result]
}

func (o Relation) judgeOne(r Readings) Finding {
	f := Finding{Relation: o, Result: Unmeasured}
	less, lessWhy := read(r, o.Less)
	more, moreWhy := read(r, o.More)
	if f.Detail = cmp.Or(lessWhy, moreWhy); f.Detail == "" {
		f.compare(less, more)
	}
	return f
}

// read gives the figure, or says why there is none.
func read(r Readings, name string) (Reading, string) {
	if v, err := strconv.ParseFloat(name, 64); err == nil {
		return Reading{Interval: alone(v)}, ""
	}
	x, ok := r.Find(name)
	if ok {
		return x, ""
	}
	where, _, _ := strings.Cut(name, " ")
	return x, where + ": " + cmp.Or(r.Missing(name), "not measured")
}

// compare judges by the intervals: those that overlap tell neither way.
func (f *Finding) compare(less, more Reading) {
	f.Detail = fmt.Sprintf("%s, %s", figure(f.Less, less), figure(f.More, more))
	if less.Mean > 0 && more.Mean > 0 {
		f.Ratio = new(more.Mean / less.Mean)
	}
	overlap := less.Low <= more.High && more.Low <= less.High
	switch {
	case f.Within > 0 && f.Ratio != nil && max(*f.Ratio, 1 / *f.Ratio) <= f.Within:
		f.Result = Holds
	case less.Confidence == 0 || more.Confidence == 0:
		f.Result = Tied
		f.Detail += "; one repeat tells nothing of the others"
	case overlap:
		f.Result = Tied
	case f.Within > 0 || less.Low > more.High:
		f.Result = Contrary
	default:
		f.Result = Holds
	}
}

// figure is a reading in words.
func figure(name string, r Reading) string {
	text := fmt.Sprintf("%s: %.4g", name, r.Mean)
	if _, err := strconv.ParseFloat(name, 64); err == nil {
		return name
	}
	if r.Confidence > 0 && r.Confidence < certain {
		text += fmt.Sprintf(" [%.4g, %.4g]", r.Low, r.High)
	}
	if r.Mark != "" {
		text += " (" + r.Mark + ")"
	}
	return text
}

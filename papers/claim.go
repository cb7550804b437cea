package papers

import (
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A Claim is one statement of the paper: one quantity is below another, or has a
// given value.
//
// Less, More and Value name readings, or are numbers. A * in a name stands for
// every reading that matches; in both names it stands for the same text. The
// order must then hold for each, and the ratio is their geometric mean.
// "figure-6: NAME" is a reading of another run of the same paper.
type Claim struct {
	Says   string  `yaml:"says" json:"says"`                         // in words, with the section
	Less   string  `yaml:"less,omitempty" json:"less,omitempty"`     // the lower quantity
	More   string  `yaml:"more,omitempty" json:"more,omitempty"`     // the higher one
	Value  string  `yaml:"value,omitempty" json:"value,omitempty"`   // in place of both
	Paper  *Span   `yaml:"paper,omitempty" json:"paper,omitempty"`   // More / Less in the paper, or Value; nil: not given
	Within float64 `yaml:"within,omitempty" json:"within,omitempty"` // above 1: Less and More are alike, at most this factor apart
	Free   bool    `yaml:"free,omitempty" json:"free,omitempty"`     // the paper claims nothing: the ratio is printed
}

// A Span is a quantity as the paper gives it: one figure, or from one to another.
type Span struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// UnmarshalYAML reads 1.71 and [1.026, 1.161].
func (s *Span) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		err := n.Decode(&s.Low)
		s.High = s.Low
		return err
	}
	var two [2]float64
	if err := n.Decode(&two); err != nil {
		return err
	}
	s.Low, s.High = two[0], two[1]
	return nil
}

func (s *Span) String() string {
	if s == nil {
		return ""
	}
	text := strconv.FormatFloat(s.Low, 'f', -1, 64)
	if s.High != s.Low {
		text += " to " + strconv.FormatFloat(s.High, 'f', -1, 64)
	}
	return text
}

// names returns what Less, More and Value name.
func (c Claim) names() []string {
	return slices.DeleteFunc([]string{c.Less, c.More, c.Value}, func(name string) bool { return name == "" })
}

const wildcard = "*"

// instances returns the claim for each text that its * stands for, in order. It
// returns the claim itself when it has no *, or when none of its readings was
// measured.
func (c Claim) instances(r Readings) (list []Claim, of []string) {
	patterns := slices.DeleteFunc(c.names(), func(name string) bool { return !strings.Contains(name, wildcard) })
	for _, p := range patterns {
		of = append(of, r.matching(p)...)
	}
	slices.SortFunc(of, natural)
	of = slices.Compact(of)
	for _, what := range of {
		x := c
		for _, name := range []*string{&x.Less, &x.More, &x.Value} {
			*name = strings.Replace(*name, wildcard, what, 1)
		}
		if x.Less == x.More && x.Less != "" { // the best size against itself
			continue
		}
		list = append(list, x)
	}
	of = slices.DeleteFunc(of, func(what string) bool {
		return len(patterns) == 1 && (strings.Replace(c.Less, wildcard, what, 1) == c.More || strings.Replace(c.More, wildcard, what, 1) == c.Less)
	})
	if len(list) == 0 {
		return []Claim{c}, []string{""}
	}
	return list, of
}

// match returns the text that * stands for in the name, if the name fits the
// pattern.
func match(pattern, name string) (what string, ok bool) {
	before, after, ok := strings.Cut(pattern, wildcard)
	if !ok || len(name) <= len(before)+len(after) || !strings.HasPrefix(name, before) || !strings.HasSuffix(name, after) {
		return "", false
	}
	what = name[len(before) : len(name)-len(after)]
	return what, !strings.Contains(what, " ")
}

// natural orders numbers by value, and other names as text.
func natural(a, b string) int {
	x, errX := strconv.Atoi(a)
	y, errY := strconv.Atoi(b)
	if errX == nil && errY == nil {
		return x - y
	}
	return strings.Compare(a, b)
}

package main

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"vitrine/papers"
	"vitrine/search/sim/queue"
)

// figures returns the cells of the result in the page's tables, under the headings of figureNames.
// Width and load are multiples of those of the unchanged search.
func (f ablationFound) figures(whole *ablationFound) []string {
	worst, width, load := f.worst(), f.width(whole), f.load(whole)
	return []string{
		fmt.Sprintf("%.3f", f.coverage()), fmt.Sprintf("%.3f (`%s`)", float64(worst.Held)/float64(worst.Runs), worst.Family),
		fmt.Sprint(f.contradictions()), fmt.Sprintf("%.2f", width), fmt.Sprintf("%.2f", load),
	}
}

// figureNames returns the headings of the cells that figures returns.
func figureNames() []string {
	return []string{"coverage", "the lowest family's", "contradictions", "width", "load"}
}

func (f ablationFound) width(whole *ablationFound) float64 {
	return f.times(whole, func(f queue.FamilyFigure) float64 { return f.Width })
}

func (f ablationFound) load(whole *ablationFound) float64 {
	return f.times(whole, func(f queue.FamilyFigure) float64 { return f.Load })
}

// ablationSection returns the page's section: the source of the committed results and their tables.
// Without results, it returns notRun.
func ablationSection(root string) (string, error) {
	record, err := readAblations(filepath.Join(root, ablationRecordFile))
	if err != nil || len(record) == 0 {
		return notRun, err
	}
	parts := []string{record.origin(), record.rulesTable()}
	for _, in := range settings() {
		parts = append(parts, record.constantsTable(in)...)
	}
	return strings.Join(append(parts, record.effects()...), "\n\n"), nil
}

// origin returns a sentence about the searches, servers, dates, hosts and commits of the results.
func (r ablationRecord) origin() string {
	list := func(text func(ablationFound) string) string { return strings.Join(distinct(r, text), ", ") }
	return fmt.Sprintf("%d searches of each family and precision for a rule and %d for a constant, on the servers `%s`, %s, on %s, by %s, with `search/` in the state %s. Width and load are medians of a family, as multiples of those of the search as it is; the geometric mean over families.",
		rulesRuns, constantsRuns, queue.Tuning,
		list(func(f ablationFound) string { return f.Date }), list(func(f ablationFound) string { return f.Host }),
		list(func(f ablationFound) string { return "`" + f.Commit + "`" }), list(func(f ablationFound) string { return "`" + f.Search + "`" }))
}

func (r ablationRecord) rulesTable() string {
	grid := [][]string{append([]string{"the search", "precision"}, figureNames()...)}
	for _, precision := range truthPrecisions() {
		for _, a := range rules() {
			f, whole := r.find(a, precision), r.find(a.whole(), precision)
			if f != nil && whole != nil {
				grid = append(grid, append([]string{f.Name, fmt.Sprint(precision)}, f.figures(whole)...))
			}
		}
	}
	return papers.Markdown(grid)
}

// constantsTable returns a title and the table of the setting's constants, or nil if there are no
// results for them.
func (r ablationRecord) constantsTable(in setting) []string {
	whole := r.find(in.whole(), constantsPrecision)
	if whole == nil {
		return nil
	}
	grid := [][]string{append([]string{"constant", "is", "tried"}, figureNames()...)}
	for _, c := range constants() {
		for _, value := range []string{c.lower, c.higher} {
			if f := r.find(c.at(value), constantsPrecision); c.in == in && f != nil {
				grid = append(grid, append([]string{c.title(), code(c.value), code(value)}, f.figures(whole)...))
			}
		}
	}
	if len(grid) == 1 {
		return nil
	}
	title := fmt.Sprintf("Constants at a lower and at a higher value, precision %g", constantsPrecision)
	if in != ordinary {
		title += fmt.Sprintf(", %s (the search as it is: coverage %.3f)", in.explained(), whole.coverage())
	}
	return []string{title + ":", papers.Markdown(grid)}
}

// title returns the name for the page. A name from the source is formatted as code. A description
// is not; it has spaces.
func (c constant) title() string {
	if strings.Contains(c.name, " ") {
		return c.name
	}
	return code(c.name)
}

func code(text string) string { return "`" + strings.TrimSpace(text) + "`" }

// Differences from the unchanged search that count as small: of coverage, in absolute terms, and of
// width and load, as a share.
const littleCoverage, littleElse = 0.01, 0.03

// effects returns a paragraph about the constants that change nothing, and one about those that
// change little. A paragraph without constants is left out.
func (r ablationRecord) effects() (texts []string) {
	var none, little []string
	for _, c := range constants() {
		whole := r.find(c.in.whole(), constantsPrecision)
		lower, higher := r.find(c.at(c.lower), constantsPrecision), r.find(c.at(c.higher), constantsPrecision)
		switch {
		case whole == nil || lower == nil || higher == nil:
		case slices.Equal(lower.Families, whole.Families) && slices.Equal(higher.Families, whole.Families):
			none = append(none, c.title())
		case lower.like(whole) && higher.like(whole):
			little = append(little, c.title())
		}
	}
	if len(none) > 0 {
		texts = append(texts, "Every figure of every family is the same at both values of "+strings.Join(none, ", ")+
			". Where they have no source above, their values are arbitrary in the range tried: the results do not depend on them.")
	}
	if len(little) > 0 {
		texts = append(texts, fmt.Sprintf("Both values change coverage by at most %g, and width and load by at most %g%%, for %s. That is within chance. Where they have no source above, their values are arbitrary in the range tried, too.",
			littleCoverage, 100*littleElse, strings.Join(little, ", ")))
	}
	return texts
}

// like reports whether the result differs little from that of the unchanged search.
func (f ablationFound) like(whole *ablationFound) bool {
	const rounded = 1e-9
	return math.Abs(f.coverage()-whole.coverage()) <= littleCoverage+rounded && f.contradictions() == whole.contradictions() &&
		math.Abs(f.width(whole)-1) <= littleElse && math.Abs(f.load(whole)-1) <= littleElse
}

package main

import (
	"cmp"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"vitrine/papers"
)

// truthPages returns the pages with the tables of each kind.
func truthPages() (all []page) {
	for _, k := range truthKinds() {
		all = append(all,
			page{"docs/simulate.md", "bench/" + k.name, k.ofRecords(judgedSection)},
			page{"docs/search.md", "bench/" + k.name + "/cost", k.ofRecords(k.costSection)})
		if !k.stateful { // as in truthBench.work, which runs no peers on stateful servers
			all = append(all, page{"docs/search.md", "bench/" + k.name + "/peers", k.ofRecords(k.peerSection)})
		}
	}
	return all
}

// ofRecords returns a function that generates a section from the kind's records below root.
func (k truthKind) ofRecords(section func([]truthRecord) string) func(root string) (string, error) {
	return func(root string) (string, error) {
		records, err := readTruth(filepath.Join(root, k.recordFile()))
		if err != nil || len(records) == 0 {
			return notRun, err
		}
		return section(records), nil
	}
}

// judgedSection returns a table of the coverage, width and error of our search's intervals.
func judgedSection(records []truthRecord) string {
	grid := [][]string{{"family", "precision", "runs", "coverage", "p", "contradictions", "median width", "over the oracle's", "median error"}}
	held, runs := 0, 0
	for _, r := range records {
		for _, f := range r.Figures {
			if f.Search != ourSearch {
				continue
			}
			held, runs = held+f.Held, runs+f.Runs
			grid = append(grid, []string{
				"`" + r.Family + "`", fmt.Sprint(f.Precision), fmt.Sprint(f.Runs),
				fmt.Sprintf("%.3f (%.3f to %.3f)", f.Coverage, f.CoverageLow, f.CoverageHigh), fmt.Sprintf("%.2g", f.P), fmt.Sprint(f.Contradictions),
				figureText(f.Width, "%.3f"), fmt.Sprintf("%.2f", f.overOracle()), figureText(f.Error, "%.4f"),
			})
		}
	}
	return origin(records) + "\n\n" + papers.Markdown(grid) +
		fmt.Sprintf("\nOf all %d intervals, %d hold the truth (%.3f). Coverage has its exact 95%% interval; p is the probability of so few.\n", runs, held, float64(held)/float64(max(runs, 1)))
}

// costSection returns a table of the median trials, deployments and load of our search.
func (k truthKind) costSection(records []truthRecord) string {
	grid := [][]string{{"family"}}
	for _, precision := range k.precisions {
		for _, what := range []string{"trials", "deployments", "load"} {
			grid[0] = append(grid[0], fmt.Sprintf("%s at %g", what, precision))
		}
	}
	for _, r := range records {
		row := []string{"`" + r.Family + "`"}
		for _, precision := range k.precisions {
			i := slices.IndexFunc(r.Figures, func(f truthFigure) bool { return f.Search == ourSearch && f.Precision == precision })
			if i < 0 {
				row = append(row, "–", "–", "–")
				continue
			}
			f := r.Figures[i]
			row = append(row, fmt.Sprintf("%.0f", f.Trials), fmt.Sprintf("%.0f", f.Deployments), fmt.Sprintf("%.0f min", f.Load/60))
		}
		grid = append(grid, row)
	}
	return "Medians. " + origin(records) + "\n\n" + papers.Markdown(grid)
}

// peerSection returns tables of the coverage, error and cost of our search beside those of mlr and
// MLRsearch.
func (k truthKind) peerSection(records []truthRecord) string {
	heading := []string{"family", "precision", "search", "hold the truth", "error", "load", "in all"}
	whole, each := [][]string{heading}, [][]string{heading}
	for _, precision := range k.precisions {
		for _, search := range truthSearches() {
			var all []truthFigure
			for _, r := range records {
				all = append(all, slices.DeleteFunc(slices.Clone(r.Figures), func(f truthFigure) bool { return f.Search != search || f.Precision != precision })...)
			}
			if len(all) > 0 {
				whole = append(whole, peerLine("all", all...))
			}
		}
	}
	for _, r := range records {
		for _, f := range r.Figures {
			each = append(each, peerLine("`"+r.Family+"`", f))
		}
	}
	return strings.Join([]string{
		fmt.Sprintf("Medians of each family; \"all\" has the medians over families. %s The other searches did every %dth of them.", origin(records), truthPeered),
		strings.TrimSpace(papers.Markdown(whole)), "<details><summary>By family</summary>", strings.TrimSpace(papers.Markdown(each)), "</details>",
	}, "\n\n")
}

// peerLine returns a line about figures of one search at one precision: the sum of their intervals,
// and the medians of the other figures.
func peerLine(family string, figures ...truthFigure) []string {
	held, runs, nothing := 0, 0, math.Inf(1)
	for _, f := range figures {
		held, runs = held+f.Held, runs+f.Runs
	}
	middle := func(of func(truthFigure) float64) float64 { return median(values(figures, of)) }
	return []string{
		family, fmt.Sprint(figures[0].Precision), figures[0].Search, fmt.Sprintf("%d of %d", held, runs),
		fmt.Sprintf("%.4f", middle(func(f truthFigure) float64 { return *cmp.Or(f.Error, &nothing) })),
		fmt.Sprintf("%.1f min", middle(func(f truthFigure) float64 { return f.Load })/60),
		fmt.Sprintf("%.1f min", middle(func(f truthFigure) float64 { return f.Wall })/60),
	}
}

// origin returns the source of the records in sentences. Families with the same source share a
// sentence.
func origin(records []truthRecord) string {
	var texts []string
	families := map[string][]string{}
	all := true
	for _, r := range records {
		text := fmt.Sprintf("%d searches of each family and precision on the servers `%s`, %s, on %s, by commit `%s`.", r.Runs, r.Servers, r.Date, r.Host, r.Commit)
		if families[text] == nil {
			texts = append(texts, text)
		}
		families[text] = append(families[text], "`"+r.Family+"`")
		all = all && r.Runs >= truthRuns
	}
	if len(texts) > 1 {
		for i, text := range texts {
			texts[i] = strings.Join(families[text], ", ") + ": " + text
		}
	}
	if !all {
		texts = append(texts, fmt.Sprintf("The full bench, %d searches of each, has not been run yet.", truthRuns))
	}
	return strings.Join(texts, " ")
}

func figureText(v *float64, format string) string {
	if v == nil {
		return "–"
	}
	return fmt.Sprintf(format, *v)
}

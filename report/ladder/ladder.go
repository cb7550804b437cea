// Package ladder shows an affinity analysis: as one self-contained page, with a ladder
// of each call flow and a graph of each type of transaction, and as a few tables for a
// terminal.
package ladder

import (
	"bytes"
	_ "embed" // the page's template
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"vitrine/affinity"
	"vitrine/affinity/compare"
	"vitrine/affinity/graph"
	"vitrine/internal/durable"
	"vitrine/report"
)

// The names of the files that Write makes.
const (
	JSONFile    = "affinity.json"
	PageFile    = "affinity.html"
	ChangesFile = "comparison.json"
)

//go:embed page.html
var pageTemplate string

// A page is what the template shows.
type page struct {
	*affinity.Analysis
	Types []typeView

	Compared *compare.Comparison // nil: no comparison
}

type typeView struct {
	affinity.Type
	ID, File string
	Network  template.HTML
	Ladders  []ladderView
}

type ladderView struct {
	affinity.Flow
	File    string
	Drawing template.HTML
}

// Write writes affinity.json, the offline page affinity.html, and the figures as SVG and DOT into
// the folder. It replaces the files of an earlier Write. See report.FigureFolder for the folders
// that Write refuses. c may be nil, or a comparison of an earlier analysis with this one. With a
// comparison, the page includes it and Write also writes comparison.json.
func Write(dir string, a *affinity.Analysis, c *compare.Comparison) error {
	figures, err := report.FigureFolder(dir, ours)
	if err != nil {
		return err
	}
	text, err := a.JSON()
	if err != nil {
		return err
	}
	html, files, err := draw(a, c)
	if err != nil {
		return fmt.Errorf("making %s: %w", PageFile, err)
	}
	for name, content := range files {
		if err := durable.Replace(filepath.Join(figures, name), []byte(content), 0o644); err != nil {
			return fmt.Errorf("writing a figure: %w", err)
		}
	}
	texts := map[string][]byte{JSONFile: text, PageFile: html}
	if c != nil {
		if texts[ChangesFile], err = c.JSON(); err != nil {
			return err
		}
	} else if err := os.Remove(filepath.Join(dir, ChangesFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing an earlier comparison: %w", err)
	}
	for name, content := range texts {
		if err := durable.Replace(filepath.Join(dir, name), content, 0o644); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
	}
	return nil
}

// ours matches the file names of figures.
var ours = regexp.MustCompile(`^affinity-[0-9]+(-graph|-[0-9]+)?\.(svg|dot)$`)

// draw returns the page, and the figures by file name.
func draw(a *affinity.Analysis, c *compare.Comparison) (html []byte, files map[string]string, err error) {
	p := page{Analysis: a, Compared: c}
	files = map[string]string{}
	for i, t := range a.Types {
		v := typeView{Type: t, ID: fmt.Sprintf("type-%d", i+1), File: fmt.Sprintf("affinity-%d", i+1)}
		svg := network(t)
		v.Network = report.Themed(svg)
		files[v.File+"-graph.svg"] = svg
		files[v.File+".dot"] = graph.DOT(t.Type, t.Pairs, t.Members)
		for k, f := range t.Flows {
			l := ladderView{Flow: f, File: fmt.Sprintf("%s-%d", v.File, k+1)}
			svg := steps(f, t.Members)
			files[l.File+".svg"] = svg
			// The page has several drawings, and names of arrow heads must be unique in it.
			l.Drawing = report.Themed(strings.ReplaceAll(svg, "arrow-", l.File+"-arrow-"))
			v.Ladders = append(v.Ladders, l)
		}
		p.Types = append(p.Types, v)
	}
	var b bytes.Buffer
	err = report.WritePage(&b, pageTemplate, template.FuncMap{
		"number": number, "millis": millis, "percent": percent, "join": join, "changes": func(t compare.Type) []changeLine { return comparedLines(&t) },
		"counts": func(t compare.Type) string { return countsOf(&t) }, "sub": func(a, b float64) float64 { return a - b },
		"mebibytes": func(bytes int64) string { return number(float64(bytes)/(1<<20)) + " MiB" },
	}, p)
	return b.Bytes(), files, err
}

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"vitrine"
	"vitrine/internal/durable"
	"vitrine/papers"
)

// An exhibitResult is an exhibit with its verdicts.
type exhibitResult struct {
	Name     string           `json:"name"`
	Title    string           `json:"title"`
	Plan     string           `json:"plan"`
	Refused  string           `json:"not_judged,omitempty"` // the reason, if the run is not judged
	Verdicts []papers.Verdict `json:"verdicts"`
}

// show prints the exhibits, and writes the verdicts into the folder of each new run. With
// --markdown, it also writes the page.
func (a *app) show(exhibits []papers.Exhibit, list []*measurement, f reproduceFlags) error {
	var all []exhibitResult
	var text bytes.Buffer
	of := map[*measurement][]exhibitResult{}
	for _, e := range exhibits {
		i := slices.IndexFunc(list, func(m *measurement) bool { return m.exhibit.Name == e.Base() })
		if i < 0 { // no result; the error is already recorded
			continue
		}
		s, err := list[i].judge(e, f.papers, &text)
		if err != nil {
			return err
		}
		all, of[list[i]] = append(all, s), append(of[list[i]], s)
	}
	for _, m := range list {
		if f.from == "" {
			if err := saveVerdicts(filepath.Join(m.dir, "verdicts.json"), of[m]); err != nil {
				return err
			}
		}
		if f.markdown {
			if err := a.addRecord(m, f); err != nil {
				return err
			}
		}
	}
	if f.json {
		return json.NewEncoder(a.stdout).Encode(all)
	}
	if _, err := a.stdout.Write(text.Bytes()); err != nil {
		return err
	}
	for _, m := range list {
		fmt.Fprintln(a.stdout, "report of", m.exhibit.Name+":", filepath.Join(m.dir, "report.html"))
	}
	return nil
}

// judge compares the statements of an exhibit's paper with the run.
func (m *measurement) judge(e papers.Exhibit, dir string, text *bytes.Buffer) (exhibitResult, error) {
	s := exhibitResult{Name: papers.Prefix + e.Name, Title: e.Title}
	h, err := history(e.Base(), dir)
	if err != nil {
		return s, err
	}
	if s.Plan, _, err = papers.PlanOf(m.data.Manifest); err != nil {
		return s, err
	}
	s.Refused = h.Refuses(s.Plan, m.data.Manifest.Started)
	if s.Refused == "" && !m.exhibit.Measured() && m.data.Manifest.Finished.IsZero() {
		s.Refused = "the run has not ended: continue it with --resume"
	}
	r, err := m.read.Beside(os.DirFS(dir), e)
	if err != nil {
		return s, err
	}
	s.Verdicts = e.Judge(r, s.Refused)
	if s.Refused != "" {
		fmt.Fprintf(text, "\nnothing of %s is judged: %s\n", papers.Prefix+e.Name, s.Refused)
	}
	return s, e.Text(text, r, s.Verdicts)
}

// history returns the history in the folder, or the one that is built into the program.
func history(base, dir string) (papers.History, error) {
	h, err := papers.ReadHistory(os.DirFS(dir), base)
	if err != nil || h.Committed() != nil {
		return h, err
	}
	return papers.ReadHistory(papers.Files(), base)
}

func saveVerdicts(path string, verdicts any) error {
	text, err := json.MarshalIndent(verdicts, "", "  ")
	if err != nil {
		return err
	}
	return durable.Replace(path, append(text, '\n'), 0o644)
}

// addRecord adds the run to the committed records and the page. It accepts only a
// finished run of the committed plan.
func (a *app) addRecord(m *measurement, f reproduceFlags) error {
	from := os.DirFS(f.papers)
	h, err := papers.ReadHistory(from, m.exhibit.Name)
	if err != nil {
		return err
	}
	record, err := m.exhibit.NewRecord(m.data, m.read)
	if err != nil {
		return err
	}
	if why := h.Refuses(record.Plan, record.Started); why != "" {
		return &vitrine.BadInput{File: m.dir, Found: why, Want: "a run of vitrine reproduce " + papers.Prefix + m.exhibit.Name + " by the committed plan"}
	}
	if record.Finished.IsZero() {
		return &vitrine.BadInput{File: m.dir, Found: "a run that has not ended", Want: "continue it with vitrine reproduce --resume"}
	}
	h = h.WithRun(papers.Begun{Started: record.Started, Plan: record.Plan, Tool: record.Tool})
	page := f.page
	if page == "" {
		page = filepath.Join("docs", m.exhibit.Paper()+".md")
	}
	old, err := os.ReadFile(page)
	if err != nil {
		return fmt.Errorf("the page to write the tables into (--page): %w", err)
	}
	if err := errors.Join(record.Write(f.papers), h.Write(f.papers, m.exhibit.Name)); err != nil {
		return err
	}
	filled, err := papers.Fill(page, string(old), from)
	if err != nil {
		return err
	}
	a.log().Info("written", "page", page, "record of", m.exhibit.Name)
	return durable.Replace(page, []byte(filled), 0o644)
}

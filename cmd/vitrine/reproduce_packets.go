package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"vitrine"
	"vitrine/measure"
	"vitrine/measure/chain"
	"vitrine/papers"
	"vitrine/result"
	"vitrine/testbed"
)

// A measurement is one run that exhibits of packets show.
type measurement struct {
	exhibit papers.Exhibit // whose it is; others show it too
	options options
	given   measure.Options
	dir     string // of the run
	data    *result.Data
	read    papers.Readings
}

// network is what is measured between two instances.
func (m *measurement) network(scale papers.Scale) measure.Settings {
	s := m.exhibit.NetworkSettings(scale)
	s.Options = m.given
	return s
}

// chain is what is measured of chains.
func (m *measurement) chain(scale papers.Scale) (chain.Plan, error) {
	s := m.exhibit.ChainSettings(scale)
	s.Options = m.given
	return chain.MakePlan(s, chains)
}

// scale is how much is measured.
func (f *reproduceFlags) scale() papers.Scale {
	switch {
	case f.quick:
		return papers.Quick
	case f.full:
		return papers.Full
	}
	return papers.Usual
}

// reproducePackets measures what the exhibits show, each measurement once, and
// prints what came of it.
func (a *app) reproducePackets(ctx context.Context, exhibits []papers.Exhibit, f reproduceFlags) error {
	list, err := measurements(exhibits, f)
	if err != nil {
		return err
	}
	var cpus testbed.CPUs
	if f.from == "" { // once: what measures keeps this process off the function's
		if cpus, err = testbed.ShareCPUs(nil, nil); err != nil {
			return err
		}
	}
	if f.dryRun {
		return a.printPacketPlans(list, cpus, f)
	}
	var failed []error
	for _, m := range list {
		if f.from == "" {
			err := a.runPackets(ctx, m, cpus, f)
			if context.Cause(ctx) != nil {
				return err
			}
			if err != nil {
				failed = append(failed, fmt.Errorf("%s: %w", m.exhibit.Name, err))
			}
		}
		if err := m.load(); err != nil {
			failed = append(failed, err)
		}
	}
	list = slices.DeleteFunc(list, func(m *measurement) bool { return m.data == nil })
	if len(list) > 0 {
		failed = append(failed, a.printPackets(exhibits, list, f))
	}
	return errors.Join(failed...)
}

// load reads what was measured; without it, data stays nil.
func (m *measurement) load() error {
	data, err := loadRun(m.dir)
	if err == nil {
		m.read, err = papers.Read(data)
	}
	if err != nil {
		return err
	}
	m.data = data
	return nil
}

// measurements are those that the exhibits show, and where their runs are. Of
// one, the folder is --out itself, or --from; of several, one each below it.
func measurements(exhibits []papers.Exhibit, f reproduceFlags) ([]*measurement, error) {
	var list []*measurement
	for _, e := range exhibits {
		if slices.ContainsFunc(list, func(m *measurement) bool { return m.exhibit.Name == e.Base() }) {
			continue
		}
		base, err := papers.Find(e.Base())
		if err != nil {
			return nil, err
		}
		m := &measurement{exhibit: base, options: f.options}
		components := networkComponents()
		if base.Chain != nil {
			components = chainComponents()
		}
		if m.given, err = m.options.load(components); err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	name := list[0].exhibit.Name
	if len(list) > 1 {
		name = filepath.Dir(name)
	}
	dir := f.from
	if dir == "" {
		dir = runFolder(f.out, strings.ReplaceAll(name, "/", "-"))
	}
	for _, m := range list {
		m.dir = dir
		below := filepath.Join(dir, filepath.Base(m.exhibit.Name))
		if _, err := os.Stat(below); len(list) > 1 || f.from != "" && err == nil {
			m.dir = below
		}
	}
	return list, nil
}

func (a *app) printPacketPlans(list []*measurement, cpus testbed.CPUs, f reproduceFlags) error {
	for _, m := range list {
		if !f.json {
			fmt.Fprintln(a.stdout, m.exhibit.Title)
		}
		if m.exhibit.Chain != nil {
			plan, err := m.chain(f.scale())
			if err == nil {
				err = a.printChainPlan(plan, f.json)
			}
			if err != nil {
				return err
			}
			continue
		}
		if err := a.printNetworkPlan(m.network(f.scale()), cpus, measure.OwnCPU, f.json); err != nil {
			return err
		}
	}
	return nil
}

// runPackets measures into the folder, or goes on there.
func (a *app) runPackets(ctx context.Context, m *measurement, cpus testbed.CPUs, f reproduceFlags) error {
	resume := f.resume
	if _, err := os.Stat(m.dir); err != nil { // of several runs, those that were not begun
		resume = false
	}
	if m.exhibit.Chain != nil {
		plan, err := m.chain(f.scale())
		if err != nil {
			return err
		}
		return a.chain(ctx, plan, session{m.dir, resume, cpus, &m.options})
	}
	return a.network(ctx, m.network(f.scale()), measure.OwnCPU, session{m.dir, resume, cpus, &m.options})
}

// shown is an exhibit with what was found.
type shown struct {
	Name     string           `json:"name"`
	Title    string           `json:"title"`
	Findings []papers.Finding `json:"findings"`
}

// printPackets shows the exhibits, and keeps beside each run what was found.
func (a *app) printPackets(exhibits []papers.Exhibit, list []*measurement, f reproduceFlags) error {
	var all []shown
	var text, markdown bytes.Buffer
	of := map[*measurement][]shown{}
	for _, e := range exhibits {
		i := slices.IndexFunc(list, func(m *measurement) bool { return m.exhibit.Name == e.Base() })
		if i < 0 { // there is nothing of it, for a reason that is given at the end
			continue
		}
		m := list[i]
		found := e.JudgeReadings(m.read)
		s := shown{papers.Prefix + e.Name, e.Title, found}
		all, of[m] = append(all, s), append(of[m], s)
		if err := errors.Join(e.Text(&text, m.read, found), e.Markdown(&markdown, m.read, found)); err != nil {
			return err
		}
	}
	if f.from == "" {
		for m, shown := range of {
			if err := saveVerdicts(filepath.Join(m.dir, "verdicts.json"), shown); err != nil {
				return err
			}
		}
	}
	if f.markdown != "" {
		if err := writeMarked(f.markdown, circumstances(list)+markdown.String()); err != nil {
			return err
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

// circumstances say with what the runs were measured.
func circumstances(list []*measurement) string {
	h := list[0].data.Manifest.Host
	text := fmt.Sprintf("Measured on %s with %d CPUs, Linux %s, from %s.", h.CPUModel, h.CPUs, h.Kernel, list[0].data.Manifest.Started.Format("2006-01-02 15:04 UTC"))
	if busy := list[0].data.Manifest.NotIsolated; len(busy) > 0 {
		text += " The machine was not the measurement's alone: " + strings.Join(busy, "; ") + "."
	}
	for _, m := range list {
		if s, ok, err := measure.ReadSettings(m.data.Manifest); err == nil && ok {
			for _, what := range s.Scaled {
				text += fmt.Sprintf(" Scaled to this host (%s): %s.", filepath.Base(m.exhibit.Name), what)
			}
		}
	}
	return text + "\n\n"
}

// The marks in a Markdown file between which the tables stand.
const (
	markBegin = "<!-- measured: begin -->"
	markEnd   = "<!-- measured: end -->"
)

// writeMarked puts the text between the file's marks; a file that is not there is
// made, with nothing else in it.
func writeMarked(path, text string) error {
	old, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		old, err = []byte(markBegin+"\n"+markEnd+"\n"), nil
	}
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(old), markBegin)
	_, after, ended := strings.Cut(rest, markEnd)
	if !ok || !ended {
		return &vitrine.BadInput{File: path, Found: "a file without the marks " + markBegin + " and " + markEnd, Want: "put them where the tables are to stand"}
	}
	return os.WriteFile(path, []byte(before+markBegin+"\n\n"+strings.TrimSpace(text)+"\n\n"+markEnd+after), 0o644)
}

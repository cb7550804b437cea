package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"vitrine/internal/durable"
	"vitrine/papers"
	"vitrine/result"
)

// A source identifies the date, commit and host of committed figures.
type source struct {
	Date   string `json:"date"`
	Commit string `json:"commit"`
	Host   string `json:"host"`
}

// sourceAt returns the source of figures that are measured now on this host. The commit says so if
// Go files have uncommitted changes.
func sourceAt(ctx context.Context, now time.Time) source {
	h := result.ReadHost("/")
	git := func(args ...string) string {
		out, err := exec.CommandContext(ctx, "git", args...).Output()
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(out))
	}
	s := source{
		Date:   now.UTC().Format(time.DateOnly),
		Host:   h.Described(),
		Commit: cmp.Or(git("rev-parse", "--short=12", "HEAD"), "not known"),
	}
	if git("status", "--porcelain", "--", "*.go") != "" {
		s.Commit += ", with changes"
	}
	return s
}

// distinct returns the different texts of the records, in their order. Empty texts are left out.
func distinct[T any](records []T, text func(T) string) (all []string) {
	for _, r := range records {
		if t := text(r); t != "" && !slices.Contains(all, t) {
			all = append(all, t)
		}
	}
	return all
}

// listed joins the distinct texts of records for a sentence.
func listed[T any](records []T, text func(T) string) string {
	return strings.Join(distinct(records, text), " and ")
}

// readRecord reads a committed record. If the file does not exist, it leaves into unchanged.
func readRecord(file string, into any) error {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

func writeRecord(file string, record any) error {
	text, err := json.MarshalIndent(record, "", " ")
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// readLines returns the records of a file that appendLine wrote. A file that does not exist has no
// records. readLines skips a truncated line, which a killed bench leaves.
func readLines[T any](path string) (all []T, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(text) {
		line = bytes.TrimRight(line, "\n")
		var record T
		err := json.Unmarshal(line, &record)
		if bad, ok := errors.AsType[*json.SyntaxError](err); ok && bad.Offset == int64(len(line)) {
			continue
		}
		if err != nil {
			return all, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, record)
	}
	return all, nil
}

// appendLine appends a record to a file as one line of JSON, so that an interrupted bench can
// resume after it. If a killed bench left a truncated line, appendLine ends that line first.
func appendLine(path string, record any) (err error) {
	line, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	_, torn, err := durable.Torn(file)
	if err != nil {
		return err
	}
	if torn {
		line = append([]byte{'\n'}, line...)
	}
	_, err = file.Write(append(line, '\n'))
	return err
}

// A page is a Markdown file with a generated section: from a committed record, or by a simulation.
type page struct {
	path    string // from the module's root
	name    string // in the marks around the section
	section func(root string) (string, error)
}

func pages() []page {
	return append(truthPages(), []page{
		{"catalog/ims-reference/README.md", "bench/demo", demoSection},
		{"docs/decisions/0016-adaptive-search.md", "bench/ablation", ablationSection},
		{"docs/flex.md", "bench/flex-burst", burstSection},
		{"docs/flex.md", "bench/flex-random", randomSection},
		{"docs/flex.md", "bench/flex-shapes", shapesSection},
		{"docs/measuring.md", "bench/real", realSection},
		{"reference/ims/README.md", "bench/overload", overloadSection},
	}...)
}

// notRun is the text of a section without a record.
const notRun = "Not run yet."

// fill returns text with the section generated from the records below root. It fails if text has no
// marks for the section.
func (p page) fill(root, text string) (string, error) {
	section, err := p.section(root)
	if err != nil {
		return "", err
	}
	filled, found, err := papers.Replace(p.path, text, p.name, section)
	if err == nil && !found {
		err = fmt.Errorf("%s: no marks for %s", p.path, p.name)
	}
	return filled, err
}

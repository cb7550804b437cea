package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"vitrine"
	"vitrine/affinity"
	"vitrine/affinity/compare"
	"vitrine/report/ladder"
)

// compare prints the changes from the first source to the second.
func (a *app) compare(ctx context.Context, given []string, f affinityFlags) error {
	if len(given) != 2 {
		return &vitrine.BadInput{File: "--compare", Found: fmt.Sprintf("%d sources", len(given)), Want: "name two: captures, call flows, affinity.json, or folders that --out made"}
	}
	var sides [2]compare.Side
	for i, name := range given { // before the captures, which take longer
		analysis, err := written(name, f)
		if err != nil {
			return err
		}
		sides[i] = compare.Side{Name: name, Analysis: analysis}
	}
	var damages []error
	for i, name := range given {
		if sides[i].Analysis != nil {
			continue
		}
		analysis, damage, err := a.analyse(ctx, []string{name}, f)
		if err != nil {
			return err
		}
		sides[i].Analysis = analysis
		damages = append(damages, damage)
	}
	c, err := compare.Compare(sides[0], sides[1])
	if err != nil {
		return err
	}
	if f.out != "" {
		damages = append(damages, ladder.Write(f.out, sides[1].Analysis, c)) // the comparison is printed all the same
	}
	if f.json {
		return errors.Join(append(damages, printJSON(a.stdout, c))...)
	}
	return errors.Join(append(damages, ladder.Compared(a.stdout, c))...)
}

// written reads an analysis from affinity.json. It returns nil if name is a capture or a call
// flow.
func written(name string, f affinityFlags) (*affinity.Analysis, error) {
	path := name
	if isFolder(name) {
		if inside := filepath.Join(name, ladder.JSONFile); isFile(inside) {
			path = inside
		}
	}
	text, err := readAnalysis(path)
	if err != nil || text == nil {
		return nil, err
	}
	analysis, err := affinity.Parse(text)
	if err != nil {
		return nil, &vitrine.BadInput{File: path, Found: err.Error(), Want: "name a file that vitrine affinity --out or --json wrote"}
	}
	return analysis, f.pseudonymised(path, analysis)
}

// pseudonymised checks that an earlier analysis has pseudonyms made with the key of the flags. An
// analysis without pseudonyms cannot get them later.
func (f *affinityFlags) pseudonymised(path string, analysis *affinity.Analysis) error {
	if f.pseudonymise == "" {
		return nil
	}
	if c := analysis.Captured; c != nil && c.Pseudonyms != "" {
		key, err := f.key()
		if err != nil || key.ID() == c.Pseudonyms {
			return err
		}
	}
	return &vitrine.BadInput{File: path, Found: "it was written without the key of --pseudonymise, which cannot replace names in it",
		Want: "compare the captures themselves, or analyse them anew with --pseudonymise " + f.pseudonymise + " --out DIR"}
}

// readAnalysis returns the text of affinity.json. It returns nil if path is not a file or
// does not begin with a JSON object.
func readAnalysis(path string) ([]byte, error) {
	const longest = 256 << 20
	if !isFile(path) {
		return nil, nil
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, &vitrine.BadInput{File: path, Found: err.Error(), Want: "name a file that can be read"}
	}
	defer file.Close() // opened read-only
	first := make([]byte, 1)
	if n, err := file.Read(first); n == 0 || first[0] != '{' {
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		return nil, nil
	}
	text, err := io.ReadAll(io.LimitReader(file, longest+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", path, err)
	case len(text) > longest:
		return nil, &vitrine.BadInput{File: path, Found: fmt.Sprintf("longer than %d MiB", longest>>20), Want: "name an affinity.json"}
	}
	return append(first, text...), nil
}

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vitrine"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{7}, 7},
		{[]float64{9, 1, 5}, 5},
		{[]float64{4, 1, 3, 2}, 2.5},
	} {
		before := slices.Clone(c.values)
		if got := median(c.values); got != c.want {
			t.Errorf("median(%v) = %v, want %v", c.values, got, c.want)
		}
		if !slices.Equal(before, c.values) {
			t.Errorf("median changed its argument to %v", c.values)
		}
	}
}

func TestMeets(t *testing.T) {
	for _, c := range []struct {
		ratio float64
		aim   string
		want  bool
	}{
		{3, ">= 3", true}, {2.99, ">= 3", false}, {1.5, "<= 1.5", true}, {1.51, "<= 1.5", false},
	} {
		if got := meets(c.ratio, c.aim); got != c.want {
			t.Errorf("meets(%v, %q) = %v; want %v", c.ratio, c.aim, got, c.want)
		}
	}
	for _, aim := range []string{"", "3", "> 3", ">= x", ">=3x"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("meets accepted the aim %q", aim)
				}
			}()
			meets(1, aim)
		}()
	}
}

// TestRowIsMedianOfPairedRatios checks that one noisy round does not change the
// ratio, and that the ratio is the median of the pairs' ratios. The ratio of
// the medians would be 10/5.
func TestRowIsMedianOfPairedRatios(t *testing.T) {
	p := Pairs{Ours: []float64{10, 20, 9, 2, 1000}, Theirs: []float64{5, 20, 9, 2, 2}}
	r, err := p.row("x", "s", "y", "<= 1.5")
	if err != nil {
		t.Fatal(err)
	}
	if *r.Ours != 10 || *r.Theirs != 5 || *r.Ratio != 1 || !*r.Holds || *r.Spread != [2]float64{1, 500} || r.Rounds != 5 {
		t.Errorf("row is %s", encode(t, r))
	}
	if r, err = p.row("x", "s", "y", ""); err != nil || r.Holds != nil || *r.Ratio != 1 {
		t.Errorf("without an aim: %s, %v", encode(t, r), err)
	}
	var table bytes.Buffer
	printTable(&table, []Row{r})
	if !strings.Contains(table.String(), " -  ") {
		t.Errorf("without an aim:\n%s", table.String())
	}
	for _, bad := range []Pairs{{}, {Ours: []float64{1}, Theirs: []float64{0}}, {Ours: []float64{1}}} {
		if _, err := bad.row("x", "s", "y", "<= 1.5"); err == nil {
			t.Errorf("%v has a row", bad)
		}
	}
}

func TestInterleaveAlternates(t *testing.T) {
	var order strings.Builder
	note := func(name string, v float64) side {
		return func(context.Context) (float64, error) { order.WriteString(name); return v, nil }
	}
	p, err := interleave(t.Context(), minRounds, note("A", 3), note("B", 2), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if order.String() != "ABBAABBAAB" {
		t.Errorf("order %s, want five rounds, each starting where the last ended", order.String())
	}
	if !slices.Equal(p.Ours, []float64{3, 3, 3, 3, 3}) || !slices.Equal(p.Theirs, []float64{2, 2, 2, 2, 2}) {
		t.Errorf("pairs %v: the sides are swapped", p)
	}
	boom := errors.New("boom")
	_, err = interleave(t.Context(), 5, note("A", 1), func(context.Context) (float64, error) { return 0, boom }, io.Discard)
	if !errors.Is(err, boom) {
		t.Errorf("error %v does not wrap the cause", err)
	}
}

func TestJSONFields(t *testing.T) {
	p := Pairs{Ours: []float64{1}, Theirs: []float64{1}}
	measured, err := p.row("x", "s", "y", ">= 1")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"against", "aim", "holds", "name", "ours", "ratio", "rounds", "spread", "theirs", "unit"}
	var fields map[string]any
	if err := json.Unmarshal(encode(t, measured), &fields); err != nil {
		t.Fatal(err)
	}
	if got := slices.Sorted(maps.Keys(fields)); !slices.Equal(got, want) {
		t.Errorf("fields %v, want %v", got, want)
	}
}

// TestUnsupportedAndFailed checks that an unsupported bench gives a row without figures and no
// error. A failed bench gives an error, and the rows of the other benches remain.
func TestUnsupportedAndFailed(t *testing.T) {
	good := bench{"good", func(context.Context, io.Writer) ([]Row, error) {
		r, err := Pairs{Ours: []float64{1}, Theirs: []float64{1}}.row("good", "s", "y", ">= 1")
		return []Row{r}, err
	}}
	cannot := bench{"cannot", func(context.Context, io.Writer) ([]Row, error) {
		return nil, &vitrine.Unsupported{What: "cannot", Missing: "a thing"}
	}}
	broken := bench{"broken", func(context.Context, io.Writer) ([]Row, error) { return nil, errors.New("broke") }}

	rows, err := measure(t.Context(), []bench{cannot, good}, io.Discard)
	if err != nil || len(rows) != 2 || rows[0].Ratio != nil || !strings.Contains(rows[0].Reason, "a thing") {
		t.Errorf("got %v, %v", rows, err)
	}
	rows, err = measure(t.Context(), []bench{broken, good}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "broken") || len(rows) != 1 {
		t.Errorf("got %v, %v", rows, err)
	}

	file := filepath.Join(t.TempDir(), "bench.json")
	if err := writeRows(file, append(rows, Row{Name: "n", Aim: "<= 2", Reason: "r"})); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	if len(lines) != 2 || !strings.Contains(lines[1], `"aim":"<= 2"`) || !strings.Contains(lines[1], `"ours":null`) {
		t.Errorf("bench.json holds %q", data)
	}
	var table bytes.Buffer
	printTable(&table, rows)
	if !strings.Contains(table.String(), "good") || !strings.Contains(table.String(), "yes") {
		t.Errorf("table:\n%s", table.String())
	}
}

func TestChoose(t *testing.T) {
	all := []bench{{name: "a"}, {name: "b"}}
	if got, err := choose(all, nil); err != nil || len(got) != 2 {
		t.Errorf("none named: %v, %v", got, err)
	}
	if got, err := choose(all, []string{"b"}); err != nil || len(got) != 1 || got[0].name != "b" {
		t.Errorf("b named: %v, %v", got, err)
	}
	below := append(all, bench{name: "c/x"}, bench{name: "c/y"}, bench{name: "cx"})
	if got, err := choose(below, []string{"c"}); err != nil || len(got) != 2 || got[1].name != "c/y" {
		t.Errorf("all below c named: %v, %v", got, err)
	}
	if _, err := choose(all, []string{"c"}); err == nil || !strings.Contains(err.Error(), "a, b") {
		t.Errorf("c named: %v", err)
	}
}

func encode(t *testing.T, r Row) []byte {
	t.Helper()
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

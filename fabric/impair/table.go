package impair

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"vitrine"
)

const (
	tableMost  = 16 << 20 // bytes of the file
	tableParts = 1 << 12  // quantiles that are kept of a distribution
	nanosMost  = int64(delayMost)
)

// readTable reads a file of delays and gives its quantiles from the least to
// the greatest, at equal steps, in nanoseconds. The file is a list of durations,
// one a line, that were measured or made up; or an HdrHistogram of nanoseconds in
// its base64 form (V2, compressed). What is neither is a *vitrine.BadInput.
func readTable(path string) ([]int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, &vitrine.BadInput{File: path, Found: err.Error(), Want: "name a file of delays that can be read"}
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, tableMost+1))
	if err != nil {
		return nil, fmt.Errorf("reading the table of delays %s: %w", path, err)
	}
	if len(raw) > tableMost {
		return nil, &vitrine.BadInput{File: path, Found: "more than 16 MiB", Want: "want fewer delays, or an HdrHistogram"}
	}
	return parseTable(path, raw)
}

func parseTable(path string, raw []byte) ([]int64, error) {
	raw = bytes.TrimSpace(raw)
	if bytes.HasPrefix(raw, []byte("HIST")) {
		return parseHistogram(path, raw)
	}
	var delays []int64
	lines := bufio.NewScanner(bytes.NewReader(raw))
	for number := 1; lines.Scan(); number++ {
		text := string(bytes.TrimSpace(lines.Bytes()))
		if text == "" || text[0] == '#' {
			continue
		}
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 || d > delayMost {
			return nil, &vitrine.BadInput{File: path, Line: number, Column: 1, Found: fmt.Sprintf("%.40q", text), Want: "want one duration a line, 0s to " + delayMost.String() + ", such as 1.5ms"}
		}
		delays = append(delays, int64(d))
	}
	if err := lines.Err(); err != nil {
		return nil, &vitrine.BadInput{File: path, Found: err.Error(), Want: "want one duration a line"}
	}
	if len(delays) == 0 {
		return nil, &vitrine.BadInput{File: path, Found: "no delay", Want: "want one duration a line, or an HdrHistogram in base64"}
	}
	slices.Sort(delays)
	return delays, nil
}

func parseHistogram(path string, raw []byte) (_ []int64, err error) {
	bad := func(found string) error {
		return &vitrine.BadInput{File: path, Found: found, Want: "want an HdrHistogram of nanoseconds, V2 compressed, in base64"}
	}
	defer func() {
		if r := recover(); r != nil { // the library indexes by what it reads
			err = bad(fmt.Sprint("a histogram that cannot be read: ", r))
		}
	}()
	h, err := hdrhistogram.Decode(raw)
	switch {
	case err != nil:
		return nil, bad(err.Error())
	case h.TotalCount() == 0:
		return nil, bad("an empty histogram")
	case h.Min() < 0 || h.Max() > nanosMost:
		return nil, bad(fmt.Sprintf("delays of %s to %s", time.Duration(h.Min()), time.Duration(h.Max())))
	}
	delays := make([]int64, tableParts)
	for i := range delays {
		delays[i] = h.ValueAtQuantile(100 * float64(i) / (tableParts - 1))
	}
	return delays, nil
}

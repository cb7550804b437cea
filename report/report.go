// Package report shows the results of runs: as one self-contained page with
// figures and tables (Write), as a few lines for a terminal (Text), and as a
// comparison of the sizes of several runs (Compare).
//
// It shows only what the runs recorded. A missing value is shown as missing, with
// its reason. Text from outside is escaped in the page.
package report

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"

	"golang.org/x/sync/errgroup"

	"vitrine/internal/durable"
	"vitrine/result"
)

// PageFile is the name of the page that Write makes in its folder.
const PageFile = "report.html"

// Write makes report.html in dir, one file that opens offline, and its figures as
// SVG and PNG in dir/figures. Several runs are shown and compared in one page;
// they must have the same unit. See FigureFolder for the folders that Write refuses.
func Write(dir string, datas ...*result.Data) error {
	set, err := newSet(datas)
	if err != nil {
		return err
	}
	figures := set.figures()
	if err := writeFigures(dir, figures); err != nil {
		return err
	}
	var b bytes.Buffer
	if err := set.page(&b, figures, true); err != nil {
		return fmt.Errorf("making the report: %w", err)
	}
	path := filepath.Join(dir, PageFile)
	if err := durable.Replace(path, b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

// Page writes only the page, without files of its figures.
func Page(w io.Writer, datas ...*result.Data) error {
	set, err := newSet(datas)
	if err != nil {
		return err
	}
	figures := set.figures()
	for _, f := range figures {
		if _, err := f.vector(); err != nil {
			return fmt.Errorf("drawing %s: %w", f.Name, err)
		}
	}
	if err := set.page(w, figures, false); err != nil {
		return fmt.Errorf("making the report: %w", err)
	}
	return nil
}

// writeFigures draws each figure for the page and writes both its files.
func writeFigures(dir string, figures []*figure) error {
	dir, err := FigureFolder(dir, drawn)
	if err != nil {
		return err
	}
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for _, f := range figures {
		group.Go(func() error {
			svg, err := f.vector()
			if err != nil {
				return fmt.Errorf("drawing %s: %w", f.Name, err)
			}
			png, err := f.raster()
			if err != nil {
				return fmt.Errorf("drawing %s: %w", f.Name, err)
			}
			err = errors.Join(
				durable.Replace(filepath.Join(dir, f.Name+".svg"), svg, 0o644),
				durable.Replace(filepath.Join(dir, f.Name+".png"), png, 0o644))
			if err != nil {
				return fmt.Errorf("writing a figure: %w", err)
			}
			return nil
		})
	}
	return group.Wait()
}

// FigureFolder makes the folder for the figures of a page in dir and returns its
// path. It removes the files whose names match earlier, because the new page may
// have fewer figures, and those that a killed process did not finish. It refuses a
// folder that result.CheckLinks refuses, before it makes or removes anything.
func FigureFolder(dir string, earlier *regexp.Regexp) (string, error) {
	dir, err := MakeFigureFolder(dir)
	if err != nil {
		return "", err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", fmt.Errorf("looking for the figures of an earlier page: %w", err)
	}
	for _, e := range entries {
		name := e.Name()
		if of, ok := durable.Unfinished(name); ok {
			name = of
		}
		if !earlier.MatchString(name) {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			return "", fmt.Errorf("removing a figure of an earlier page: %w", err)
		}
	}
	return dir, nil
}

// MakeFigureFolder is like FigureFolder, but removes nothing.
func MakeFigureFolder(dir string) (string, error) {
	dir = filepath.Join(dir, "figures")
	if err := result.CheckLinks(dir); err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("making a folder for figures: %w", err)
	}
	return dir, nil
}

// drawn matches the names of figures' files.
var drawn = regexp.MustCompile(`^(measured|success|capacity|frontier|prediction|use|demand|search|time)(-.*)?\.(svg|png)$`)

package papers

import (
	"fmt"
	"io/fs"
	"strings"

	"vitrine"
)

// marks returns the lines of a page between which an exhibit stands.
func marks(name string) (begin, end string) {
	return "<!-- " + Prefix + name + ": begin -->", "<!-- " + Prefix + name + ": end -->"
}

// Fill writes every exhibit that the page has marks for between those marks, from
// the committed histories and records below from. path names the page in errors.
func Fill(path, page string, from fs.FS) (string, error) {
	exhibits, err := List()
	if err != nil {
		return "", err
	}
	filled := 0
	for _, e := range exhibits {
		begin, end := marks(e.Name)
		before, rest, ok := strings.Cut(page, begin)
		if !ok {
			continue
		}
		_, after, ended := strings.Cut(rest, end)
		if !ended {
			return "", &vitrine.BadInput{File: path, Found: begin + " without its end", Want: end}
		}
		section, err := e.section(from)
		if err != nil {
			return "", err
		}
		page = before + begin + "\n\n" + strings.TrimSpace(section) + "\n\n" + end + after
		filled++
	}
	if filled == 0 {
		begin, end := marks(exhibits[0].Name)
		return "", &vitrine.BadInput{File: path, Found: "a page without marks", Want: "put two such as " + begin + " and " + end + " where an exhibit is to stand"}
	}
	return page, nil
}

// Shows reports whether the page has marks for the exhibit.
func (e Exhibit) Shows(page string) bool {
	begin, _ := marks(e.Name)
	return strings.Contains(page, begin)
}

// section returns the exhibit as it stands in a page.
func (e Exhibit) section(from fs.FS) (string, error) {
	h, err := ReadHistory(from, e.Base())
	if err != nil {
		return "", err
	}
	record, err := ReadRecord(from, e.Base())
	if err != nil {
		return "", err
	}
	text := "### " + e.Title + "\n\n"
	if record == nil {
		return text + e.unrun(h), nil
	}
	r, err := record.readings().Beside(from, e)
	if err != nil {
		return "", err
	}
	text += record.circumstances(h) + "\n" + e.legend() + "\n\n" + markdown(e.Table.grid(r))
	for _, n := range r.Notes {
		text += "\n" + n + "\n"
	}
	if len(e.Claims) > 0 {
		text += "\n" + markdown(verdictGrid(e.Judge(r, h.Refuses(record.Plan, record.Started))))
	}
	return text, nil
}

// unrun returns the text for an exhibit without a run.
func (e Exhibit) unrun(h History) string {
	text := "Not run yet under these rules."
	if n := len(h.Runs); n > 0 {
		text = fmt.Sprintf("No run is published; runs under these rules: %d.", n)
	}
	if p := h.Committed(); p != nil {
		text += fmt.Sprintf(" Its plan is `%s`; statements to judge: %d.", p.Digest, len(e.Claims))
	}
	return text + "\n"
}

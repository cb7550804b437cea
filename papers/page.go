package papers

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"unicode"

	"vitrine"
)

// marks returns the lines of a page between which an exhibit stands.
func marks(name string) (begin, end string) {
	return "<!-- " + name + ": begin -->", "<!-- " + name + ": end -->"
}

// Replace writes the section between the page's marks of the name. found is false if
// the page has none. path names the page in errors.
func Replace(path, page, name, section string) (filled string, found bool, err error) {
	begin, end := marks(name)
	before, rest, found := strings.Cut(page, begin)
	if !found {
		return page, false, nil
	}
	_, after, ended := strings.Cut(rest, end)
	if !ended {
		return "", true, &vitrine.BadInput{File: path, Found: begin + " without its end", Want: end}
	}
	return before + begin + "\n\n" + strings.TrimSpace(section) + "\n\n" + end + after, true, nil
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
		if !e.Shows(page) {
			continue
		}
		section, err := e.section(page, from)
		if err != nil {
			return "", err
		}
		if page, _, err = Replace(path, page, Prefix+e.Name, section); err != nil {
			return "", err
		}
		filled++
	}
	if filled == 0 {
		begin, end := marks(Prefix + exhibits[0].Name)
		return "", &vitrine.BadInput{File: path, Found: "a page without marks", Want: "put two such as " + begin + " and " + end + " where an exhibit is to stand"}
	}
	return page, nil
}

// Shows reports whether the page has marks for the exhibit.
func (e Exhibit) Shows(page string) bool {
	begin, _ := marks(Prefix + e.Name)
	return strings.Contains(page, begin)
}

// section returns the exhibit as it stands in the page.
func (e Exhibit) section(page string, from fs.FS) (string, error) {
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
	table, verdicts := e.Table.grid(r), verdictGrid(e.Judge(r, h.Refuses(record.Plan, record.Started)))
	notes := slices.Concat(r.Notes, r.noteReasons(table, verdicts))
	text += record.circumstances(h) + "\n" + e.legend(r) + "\n\n" + Markdown(table)
	for _, n := range notes {
		text += "\n" + n + "\n"
	}
	if len(e.Claims) > 0 {
		text += "\n" + Markdown(verdicts)
	}
	if e.As == "" {
		return text + "\n" + record.details(h), nil
	}
	base, err := Find(e.Base())
	if err != nil {
		return "", err
	}
	if !base.Shows(page) {
		return text + "\n" + record.details(h), nil
	}
	return text + fmt.Sprintf("\nThe run is that of [`%s`](%s), where its plans are.\n", Prefix+base.Name, anchor(base.Title)), nil
}

// anchor returns the target of a link to a heading of the same page, as GitHub names it.
func anchor(heading string) string {
	return "#" + strings.Map(func(c rune) rune {
		switch {
		case c == ' ':
			return '-'
		case unicode.IsLetter(c), unicode.IsDigit(c), c == '-', c == '_':
			return unicode.ToLower(c)
		}
		return -1
	}, heading)
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

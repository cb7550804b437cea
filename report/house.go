package report

import (
	_ "embed" // the frame of pages, their style and their script
	"html/template"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

//go:embed house.html
var houseTemplate string

//go:embed page.css
var pageStyle string

//go:embed page.js
var pageScript string

// WritePage writes a self-contained page in the house style: the template text, filled with data. text
// begins with {{template "begin" TITLE}}, which opens the page's header, and ends with
// {{template "end"}}. Tables of the class sortable are sorted by their headings.
func WritePage(w io.Writer, text string, funcs template.FuncMap, data any) error {
	all := template.FuncMap{"style": style, "script": func() template.JS { return template.JS(pageScript) }}
	maps.Copy(all, funcs)
	t, err := template.New("page").Funcs(all).Parse(houseTemplate)
	if err != nil {
		return err
	}
	if t, err = t.New("body").Parse(text); err != nil {
		return err
	}
	return t.Execute(w, data)
}

// style returns the style sheet, with the tones of the light and the dark theme as variables.
func style() template.CSS {
	light := variables(func(t tone) string { return t.light })
	dark := variables(func(t tone) string { return t.dark })
	return template.CSS(":root{ " + light + " }\n@media (prefers-color-scheme: dark){:root{ " + dark + " }}\n@media print{:root{ " + light + " }}\n" + pageStyle)
}

// TimeAxis returns the unit and the name of a time axis of the length.
func TimeAxis(length time.Duration) (unit time.Duration, name string) {
	switch {
	case length <= 10*time.Minute:
		return time.Second, "seconds"
	case length <= 3*time.Hour:
		return time.Minute, "minutes"
	case length <= 72*time.Hour:
		return time.Hour, "hours"
	}
	return 24 * time.Hour, "days"
}

// Color returns the colour of a tone in the light theme, such as #1F2933 for "ink".
// It panics on a name that is not a tone's.
func Color(name string) string {
	i := slices.IndexFunc(tones(), func(t tone) bool { return t.name == name })
	return tones()[i].light
}

// Themed makes an SVG with colours from Color follow the theme of its page.
func Themed(svg string) template.HTML {
	for _, t := range tones() {
		svg = strings.ReplaceAll(svg, t.light, "var(--"+t.name+")")
	}
	return template.HTML(svg)
}

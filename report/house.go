package report

import (
	"html/template"
	"slices"
	"strings"
)

// Style returns the style sheet of a page in the house style, with the tones of the
// light and the dark theme as variables.
func Style() template.CSS {
	light := variables(func(t tone) string { return t.light })
	dark := variables(func(t tone) string { return t.dark })
	return template.CSS(":root{ " + light + " }\n@media (prefers-color-scheme: dark){:root{ " + dark + " }}\n@media print{:root{ " + light + " }}\n" + pageStyle)
}

// Script returns the script of such a page: tables of the class sortable are sorted by
// their headings.
func Script() template.JS { return template.JS(pageScript) }

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

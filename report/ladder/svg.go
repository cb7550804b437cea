package ladder

import (
	"fmt"
	"html"
	"strconv"
	"strings"
	"unicode"

	"vitrine/report"
)

// A drawing collects the elements of an SVG. Lengths are pixels, from the upper left
// corner.
type drawing struct {
	b       strings.Builder
	markers map[string]bool // tones of the arrow heads used
}

// A pen is the style of a line.
type pen struct {
	tone  string
	width float64
	dash  string
	arrow bool
}

func (d *drawing) line(x1, y1, x2, y2 float64, p pen) {
	more := ""
	if p.dash != "" {
		more = ` stroke-dasharray="` + p.dash + `"`
	}
	if p.arrow {
		if d.markers == nil {
			d.markers = map[string]bool{}
		}
		d.markers[p.tone] = true
		more += ` marker-end="url(#arrow-` + p.tone + `)"`
	}
	fmt.Fprintf(&d.b, `<line x1="%s" y1="%s" x2="%s" y2="%s" stroke="%s" stroke-width="%s"%s/>`+"\n",
		pixels(x1), pixels(y1), pixels(x2), pixels(y2), report.Color(p.tone), pixels(p.width), more)
}

// box draws a box with rounded corners; fill is a tone.
func (d *drawing) box(x, y, width, height float64, fill string) {
	fmt.Fprintf(&d.b, `<rect x="%s" y="%s" width="%s" height="%s" rx="6" fill="%s" stroke="%s" stroke-width="1.2"/>`+"\n",
		pixels(x), pixels(y), pixels(width), pixels(height), report.Color(fill), report.Color("rule"))
}

// A hand is the style of text.
type hand struct {
	tone   string
	size   float64
	bold   bool
	anchor string // start, middle or end
	halo   bool   // draw a halo, for text on top of lines
}

func (d *drawing) text(x, y float64, h hand, text string) {
	more := ""
	if h.bold {
		more = ` font-weight="bold"`
	}
	if h.halo {
		more += ` paint-order="stroke" stroke="` + report.Color("card") + `" stroke-width="4" stroke-linejoin="round"`
	}
	fmt.Fprintf(&d.b, `<text x="%s" y="%s" fill="%s" font-size="%s" text-anchor="%s"%s>%s</text>`+"\n",
		pixels(x), pixels(y), report.Color(h.tone), pixels(h.size), h.anchor, more, html.EscapeString(strings.Map(shown, text)))
}

// svg returns the whole picture. alt is for readers who cannot see it.
func (d *drawing) svg(width, height float64, alt string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%s" height="%s" viewBox="0 0 %s %s" role="img" aria-label="%s" font-family="'Liberation Sans',Arial,Helvetica,sans-serif">`+"\n",
		pixels(width), pixels(height), pixels(width), pixels(height), html.EscapeString(strings.Map(shown, alt)))
	if len(d.markers) > 0 {
		b.WriteString("<defs>")
		for _, tone := range []string{critical, plain} {
			if d.markers[tone] {
				fmt.Fprintf(&b, `<marker id="arrow-%s" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto-start-reverse"><path d="M0 0L8 4L0 8z" fill="%s"/></marker>`, tone, report.Color(tone))
			}
		}
		b.WriteString("</defs>\n")
	}
	fmt.Fprintf(&b, `<rect width="%s" height="%s" fill="%s"/>`+"\n", pixels(width), pixels(height), report.Color("card"))
	b.WriteString(d.b.String())
	b.WriteString("</svg>\n")
	return b.String()
}

// shown replaces characters in names from outside that XML cannot hold.
func shown(r rune) rune {
	if !unicode.IsPrint(r) {
		return '?'
	}
	return r
}

func pixels(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// textWidth estimates the width of text. The mean width of a letter is 0.54 of the
// size in Liberation Sans, and up to 0.58 in fonts that replace it.
func textWidth(text string, size float64) float64 {
	return float64(int(0.58*size*float64(len([]rune(text))) + 0.5))
}

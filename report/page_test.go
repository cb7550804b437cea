package report_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"vitrine/report"
)

// browse opens a page with the content in a browser, runs the script, and returns the document.
func browse(t *testing.T, content, script string) string {
	t.Helper()
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("chromium is not installed")
	}
	var page bytes.Buffer
	text := `{{template "begin" "test"}}</header>` + content + `{{template "end"}}<script>` + script + `</script>`
	if err := report.WritePage(&page, text, nil, nil); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(path, page.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	dom, err := exec.CommandContext(t.Context(), browser, "--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir="+t.TempDir(), "--dump-dom", "file://"+path).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(dom)
}

// TestTablesSort clicks a heading in a browser. Numbers are in their order, also with a unit or a
// bound, and addresses and names in theirs.
func TestTablesSort(t *testing.T) {
	for name, want := range map[string][]string{
		"numbers":   {"&lt; 5", "9.5", "10 [9, 11]", "≥ 20", "–"},
		"addresses": {"10.0.0.9", "10.0.0.12", "192.168.1.1"},
		"names":     {"180 INVITE", "200 BYE", "200 INVITE", "INVITE"},
		"shares":    {"-3%", "+5%", "20%"},
	} {
		t.Run(name, func(t *testing.T) {
			table := `<table class="sortable"><thead><tr><th>x</th></tr></thead><tbody>`
			for _, cell := range slices.Backward(want) {
				table += "<tr><td>" + cell + "</td></tr>"
			}
			dom := browse(t, table+"</tbody></table>", `document.querySelector("th").click()`)
			var got []string
			for _, found := range regexp.MustCompile(`<td>(.*?)</td>`).FindAllStringSubmatch(dom, -1) {
				got = append(got, found[1])
			}
			if !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// TestRowsWithoutValueComeLast sorts by the button of a heading, up and down. Only two rows have a value in
// that column.
func TestRowsWithoutValueComeLast(t *testing.T) {
	const table = `<table class="sortable"><thead><tr><th>name</th><th class="n">p50</th><th class="n">p99</th></tr></thead><tbody>` +
		`<tr><th>reason</th><td colspan="2">left out: no SR-IOV port</td></tr>` +
		`<tr><th>dash</th><td>1</td><td>–</td></tr>` +
		`<tr><th>words</th><td>1</td><td>not known</td></tr>` +
		`<tr><th>key</th><td>1</td><td data-sort="">– no valid trial</td></tr>` +
		`<tr><th>slow</th><td>2</td><td>9</td></tr><tr><th>fast</th><td>3</td><td>5</td></tr></tbody></table>`
	const press = `document.querySelectorAll("th button")[2].click();`
	for script, want := range map[string]string{press: "ascending fast slow ", press + press: "descending slow fast "} {
		got := ""
		for _, found := range regexp.MustCompile(`aria-sort="(\w+)"|<th>(\w+)</th>`).FindAllStringSubmatch(browse(t, table, script), -1) {
			got += found[1] + found[2] + " "
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("got %s, want %s first", got, want)
		}
	}
}

// TestPrintedPageIsComplete applies the style of print. Wide figures fit, and long lines of a specification
// are broken, because paper does not scroll.
func TestPrintedPageIsComplete(t *testing.T) {
	content := `<main><figure class="scroll"><svg xmlns="http://www.w3.org/2000/svg" width="3000" height="40" viewBox="0 0 3000 40"></svg></figure>` +
		"<pre>" + strings.Repeat("x", 3000) + "</pre></main>"
	dom := browse(t, content, `for (const rule of document.styleSheets[0].cssRules) if (rule.media?.mediaText === "print") rule.media.mediaText = "all";
document.title = [...document.querySelectorAll(".scroll,pre")].map((e) => e.scrollWidth > e.clientWidth ? "cut" : "whole").join();`)
	if !strings.Contains(dom, "<title>whole,whole</title>") {
		t.Errorf("a figure or a specification is cut off:\n%s", regexp.MustCompile("<title>.*</title>").FindString(dom))
	}
}

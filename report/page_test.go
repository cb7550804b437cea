package report_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"vitrine/report"
)

// TestTablesSort clicks a heading in a browser. Numbers are in their order, also with a unit or a
// bound, and addresses and names in theirs.
func TestTablesSort(t *testing.T) {
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("chromium is not installed")
	}
	for name, want := range map[string][]string{
		"numbers":   {"&lt; 5", "9.5", "10 [9, 11]", "≥ 20", "–"},
		"addresses": {"10.0.0.9", "10.0.0.12", "192.168.1.1"},
		"names":     {"180 INVITE", "200 BYE", "200 INVITE", "INVITE"},
		"shares":    {"-3%", "+5%", "20%"},
	} {
		t.Run(name, func(t *testing.T) {
			text := `{{template "begin" "test"}}</header><table class="sortable"><thead><tr><th>x</th></tr></thead><tbody>`
			for _, cell := range slices.Backward(want) {
				text += "<tr><td>" + cell + "</td></tr>"
			}
			text += `</tbody></table>{{template "end"}}<script>document.querySelector("th").click()</script>`
			var page bytes.Buffer
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
			var got []string
			for _, found := range regexp.MustCompile(`<td>(.*?)</td>`).FindAllSubmatch(dom, -1) {
				got = append(got, string(found[1]))
			}
			if !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

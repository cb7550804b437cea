package ladder

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"vitrine"
	"vitrine/affinity"
	"vitrine/affinity/compare"
	"vitrine/affinity/correlate"
	"vitrine/affinity/course"
	"vitrine/affinity/flow"
	"vitrine/affinity/graph"
	messages "vitrine/affinity/message"
	"vitrine/affinity/state"
	"vitrine/internal/hosttest"
)

var update = flag.Bool("update", false, "write the golden files anew")

// analyse returns the analysis of a small flow that has every element of a drawing.
func analyse(t *testing.T) *affinity.Analysis {
	t.Helper()
	f, err := flow.Parse("example.flow", []byte(`title: Example <of> "everything"
type: EXAMPLE
clause: RFC 3261 section 24.2
outside: UE
database: UDR
UE -> A: request & more [10]
A -> B: question [10]
A -> UDR: read [10]
UDR -> A: row [10]
B -> A: answer [10]
A -> UE: response [10]
A ~> B: record [10]
`))
	if err != nil {
		t.Fatal(err)
	}
	f.Duration = &flow.Times{P50: 12.345, P95: 20}
	a, err := affinity.Analyse([]*flow.Transaction{f}, affinity.Options{Delay: 5 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	hosttest.Golden(t, *update, filepath.Join("testdata", name+".golden"), got)
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	stale := filepath.Join(dir, "figures", "affinity-9-2.svg")
	if err := os.MkdirAll(filepath.Dir(stale), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{stale, filepath.Join(dir, "figures", "mine.svg")} {
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := Write(dir, analyse(t), nil); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"affinity.json", "affinity.html", "figures/affinity-1-1.svg", "figures/affinity-1-graph.svg", "figures/affinity-1.dot", "figures/mine.svg"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(stale); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a figure of an earlier analysis remains: %v", err)
	}
	for _, name := range []string{"affinity-1-1.svg", "affinity-1-graph.svg", "affinity-1.dot"} {
		text, err := os.ReadFile(filepath.Join(dir, "figures", name))
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name, text)
	}
}

// TestWriteRefusesForeignLinks checks that nothing is made behind another user's link.
func TestWriteRefusesForeignLinks(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip(&vitrine.Unsupported{What: "a link of another user", Missing: "root"})
	}
	root := t.TempDir()
	target, link := filepath.Join(root, "target"), filepath.Join(root, "link")
	if err := errors.Join(os.Mkdir(target, 0o700), os.Symlink(target, link), os.Lchown(link, 65534, 65534)); err != nil {
		t.Fatal(err)
	}
	if err := Write(link, analyse(t), nil); !vitrine.IsBadInput(err) {
		t.Errorf("Write returns %v", err)
	}
	if made, err := os.ReadDir(target); err != nil || len(made) > 0 {
		t.Errorf("Write made %v behind the link, %v", made, err)
	}
}

func TestText(t *testing.T) {
	var b bytes.Buffer
	if err := Text(&b, analyse(t)); err != nil {
		t.Fatal(err)
	}
	golden(t, "text.txt", b.Bytes())
}

// TestPageOpensOffline checks that the page of all built-in flows loads nothing and
// that its drawings are well-formed.
func TestPageOpensOffline(t *testing.T) {
	var flows []*flow.Transaction
	for _, group := range []string{"epc", "ims"} {
		found, err := flow.Find(group)
		if err != nil {
			t.Fatal(err)
		}
		flows = append(flows, found...)
	}
	a, err := affinity.Analyse(flows, affinity.Options{Delay: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	html, files, err := draw(a, nil)
	if err != nil {
		t.Fatal(err)
	}
	page := strings.ReplaceAll(string(html), `xmlns="http://www.w3.org/2000/svg"`, "")
	for _, loads := range []string{"http://", "https://", "<link", "@import", "<img", " src="} {
		if strings.Contains(page, loads) {
			t.Errorf("the page loads from outside: it has %s", loads)
		}
	}
	for _, shows := range []string{"ATTACH-DETACH", "HANDOVER-SR", "Initial Context Setup Request (Attach Accept)", `id="affinity-1-1-arrow-c1"`, "S-GW 40%", "13 → 3", `marker-end="url(#affinity-2-1-arrow-`} {
		if !strings.Contains(page, shows) {
			t.Errorf("the page lacks %q", shows)
		}
	}
	for name, text := range files {
		if !strings.HasSuffix(name, ".svg") {
			continue
		}
		d := xml.NewDecoder(strings.NewReader(text))
		for err = nil; err == nil; {
			_, err = d.Token()
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// captures adds to an analysis the results that only captures have.
func captures(a *affinity.Analysis) {
	message := course.Message{From: "A", To: "B", Name: "question"}
	a.Types[0].Measured = &course.Measured{Type: "EXAMPLE", Transactions: 7, Messages: 7, Begins: message, Ends: message, Duration: &flow.Times{P50: 12, P95: 20},
		Failures:   []course.Failure{{Message: message, Count: 3}},
		Path:       []course.Segment{{Function: "A", In: "request & more", Out: "question", To: "B", Mean: 4.5, Times: &flow.Times{P50: 4, P95: 9}, Share: 0.75}},
		Functions:  []course.Function{{Name: "A", Receives: 3, Sends: 4, Time: 4.5, Share: 0.75}},
		Hops:       []course.Hop{{Message: message, Count: 7, Answer: &flow.Times{P50: 1.25, P95: 2}}},
		Processing: []course.Process{{Function: "A", In: "request & more", Out: "question", Count: 7, Times: &flow.Times{P50: 4, P95: 9}}},
		Rare:       course.Rare{Courses: 2, Transactions: 2}}
	a.Types[0].Flows[0].Messages[1].After = &flow.Times{P50: 1.5, P95: 3}
	a.Captured = &affinity.Captured{Read: &messages.Summary{Messages: 49, Unknown: []messages.Edge{{Client: "A", Server: "B", Transport: "UDP", Port: 53, Packets: 5}},
		Protocols: []messages.Count{{Protocol: "SIP", Messages: 49}}},
		Others: []course.Other{{Message: message, Exchanges: 2, Messages: 4, Because: "it names no user and no session"}},
		State:  state.State{Forms: []state.Form{{Function: "A", Store: "UDR", Key: "reg/{}", Shared: 7, Longest: 40, Shortest: 40, WrittenBy: []string{"EXAMPLE"}, ReadBy: []string{"EXAMPLE"}}}}}
}

func TestCapturesAreShown(t *testing.T) {
	a := analyse(t)
	captures(a)
	var b bytes.Buffer
	if err := Text(&b, a); err != nil {
		t.Fatal(err)
	}
	golden(t, "captured.txt", b.Bytes())
	a.Captured.Damage = []string{"cut.pcap: truncated in the record at byte 40"}
	a.Captured.Read.Captures.Lost = 17
	a.Captured.Read.Clocks = []messages.Clock{{File: "sgw.pcap", Reference: "mme.pcap", Corrected: true, Offset: 0.25, Packets: 99}}
	html, files, err := draw(a, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, shows := range []string{"cut.pcap: truncated in the record at byte 40", `frames that the kernel dropped, because they were read too slowly</th><td class="n">17</td>`, "<td>sgw.pcap</td><td>mme.pcap</td><td>99</td><td>0.250000 s</td>",
		"Where the time goes", "7 transactions of 7 messages", "<td class=\"n\">75%</td>", "reg/{}", "it names no user and no session", "<td>UDP</td>", "2 rare courses"} {
		if !strings.Contains(string(html), shows) {
			t.Errorf("the page lacks %q", shows)
		}
	}
	if !strings.Contains(files["affinity-1-1.svg"], "question (1.5, 3 ms)") {
		t.Error("the ladder has no times")
	}
}

// TestManyFormsOfKeysAreCutShort: a terminal shows the forms with the most keys.
func TestManyFormsOfKeysAreCutShort(t *testing.T) {
	a := analyse(t)
	captures(a)
	for i := range 20 {
		a.Captured.State.Forms = append(a.Captured.State.Forms, state.Form{Function: "B", Store: "UDR", Key: fmt.Sprintf("form-%c", 'a'+i), Keys: i + 1})
	}
	var b bytes.Buffer
	if err := Text(&b, a); err != nil {
		t.Fatal(err)
	}
	if text := b.String(); !strings.Contains(text, "form-t") || strings.Contains(text, "form-a") || !strings.Contains(text, "and 9 more in affinity.json") {
		t.Errorf("got\n%s", text)
	}
}

// TestManyUnmatchedNamesAreCutShort: a terminal shows the first names of a names file.
func TestManyUnmatchedNamesAreCutShort(t *testing.T) {
	a := analyse(t)
	for i := range listed + 3 {
		a.Unmatched = append(a.Unmatched, fmt.Sprintf("phone-%c", 'a'+i))
	}
	var b bytes.Buffer
	if err := Text(&b, a); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	if strings.Count(text, "phone-") != listed || !strings.Contains(text, "names file: no message of phone-a, phone-b, ") ||
		!strings.Contains(text, "phone-l and 3 more in affinity.json\n") {
		t.Errorf("got\n%s", text)
	}
}

// TestATypeWithoutAnEnd: all transactions of the type were given up, so no message ends them.
func TestATypeWithoutAnEnd(t *testing.T) {
	a := analyse(t)
	captures(a)
	m := a.Types[0].Measured
	m.Ends, m.Duration, m.GivenUp = course.Message{}, nil, m.Transactions
	var b bytes.Buffer
	if err := Text(&b, a); err != nil {
		t.Fatal(err)
	}
	if want := "EXAMPLE: 7 transactions of 7 messages; begins with question from A\n0 retransmissions"; !strings.Contains(b.String(), want) {
		t.Errorf("got no %q:\n%s", want, b.String())
	}
	html, _, err := draw(a, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := "They begin with question from A. 0 retransmissions"; !strings.Contains(string(html), want) {
		t.Errorf("the page lacks %q", want)
	}
}

// TestShortTimesAreShownToAMicrosecond: a change from 11 us to 14 us does not read as no change.
func TestShortTimesAreShownToAMicrosecond(t *testing.T) {
	c := &compare.Comparison{A: "before", B: "after", Changes: 1, Types: []compare.Type{{Type: "EXAMPLE", Count: [2]int{900, 900},
		Duration: &compare.Interval{A: 0.011, B: 0.014, Least: 0.001, Most: 0.005}}}}
	var b bytes.Buffer
	if err := Compared(&b, c); err != nil {
		t.Fatal(err)
	}
	if want := "slower, whole transaction  0.011 -> 0.014 ms  +0.001 to +0.005 ms\n"; !strings.Contains(b.String(), want) {
		t.Errorf("got no %q:\n%s", want, b.String())
	}
	a := analyse(t)
	captures(a)
	a.Types[0].Measured.Hops[0].Answer = &flow.Times{P50: 0.008, P95: 0.0123}
	a.Types[0].Flows[0].Messages[1].After = &flow.Times{P50: 0.016, P95: 12.25}
	html, files, err := draw(a, c)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<td>0.011 -&gt; 0.014 ms</td><td>&#43;0.001 to &#43;0.005 ms</td>", ">0.008 / 0.012<"} {
		if !strings.Contains(string(html), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if !strings.Contains(files["affinity-1-1.svg"], "question (0.016, 12.25 ms)") {
		t.Error("the ladder lacks the times")
	}
}

// TestSharedCapturesHaveTheirTransactions compares what is found in real captures with
// golden files.
func TestSharedCapturesHaveTheirTransactions(t *testing.T) {
	const shared = "../../../shared/captures"
	for _, name := range []string{"sip.pcap", "diameter.pcap", "gtp_c.pcap", "pfcp.pcapng", "http_auth.pcap", "FAX-Call-t38-CA-TDM-SIP-FB-1.pcap", "1kxun.pcap"} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(shared, name)
			if _, err := os.Stat(file); err != nil {
				t.Skip("no shared captures here: ", err)
			}
			c, err := affinity.ReadCaptures(t.Context(), []string{file}, messages.Options{}, correlate.Options{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			a, err := affinity.Analyse(c.Flows, affinity.Options{Delay: 5 * time.Millisecond, Captured: c})
			if err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			if err := Text(&b, a); err != nil {
				t.Fatal(err)
			}
			golden(t, name+".txt", b.Bytes())
		})
	}
}

// TestPageSaysWhyThereIsNoAggregate: captures without a transaction, and functions that do not fit the host.
func TestPageSaysWhyThereIsNoAggregate(t *testing.T) {
	a := analyse(t)
	a.Aggregates, a.Types[0].Members, a.Types[0].Aggregate = nil, nil, ""
	html, _, err := draw(a, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(html), "No function may join an aggregate, or none fits the host."); n != 2 {
		t.Errorf("the page says %d times that no function joins or fits, want 2", n)
	}
	captures(a)
	a.Types = nil
	if html, _, err = draw(a, nil); err != nil {
		t.Fatal(err)
	}
	if page := string(html); !strings.Contains(page, "The captures have no transaction") || strings.Contains(page, "may join") {
		t.Error("the page does not say that there is no transaction")
	}
}

// TestBoxesOfTheGraphStayApart checks that the graph grows with the names and the number of functions.
func TestBoxesOfTheGraphStayApart(t *testing.T) {
	type rect struct{ left, top, right, bottom float64 }
	float := func(text string) float64 {
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, n := range []int{5, 15} {
		name := func(i int) string { return fmt.Sprintf("2001:db8:85a3::8a2e:370:%d", 7000+i%n) }
		var x affinity.Type
		for i := range n {
			x.Pairs = append(x.Pairs, graph.Pair{A: name(i), B: name(i + 1), Messages: 1})
		}
		x.Members = []string{name(0), name(1)}
		svg := network(x)
		size := regexp.MustCompile(`viewBox="0 0 (\S+) (\S+)"`).FindStringSubmatch(svg)
		half, height := float(size[1])/2, float(size[2])
		var boxes []rect
		for _, m := range regexp.MustCompile(`<rect x="(\S+)" y="(\S+)" width="(\S+)" height="(\S+)"`).FindAllStringSubmatch(svg, -1) {
			b := rect{left: float(m[1]), top: float(m[2])}
			b.right, b.bottom = b.left+float(m[3]), b.top+float(m[4])
			if b.left < 0 || b.top < 0 || b.right > 2*half || b.bottom > height || b.left < half && b.right > half {
				t.Errorf("of %d functions, a box is not in its panel: %+v", n, b)
			}
			for _, o := range boxes {
				if b.left < o.right && o.left < b.right && b.top < o.bottom && o.top < b.bottom {
					t.Errorf("of %d functions, %+v covers %+v", n, b, o)
				}
			}
			boxes = append(boxes, b)
		}
		if len(boxes) != n+n-1 { // the aggregate has two functions
			t.Errorf("%d functions have %d boxes", n, len(boxes))
		}
	}
}

func TestNamesFromOutsideAreEscaped(t *testing.T) {
	a := analyse(t)
	a.Types[0].Flows[0].Messages[0].Name = "<script>\x00\u2028"
	a.Types[0].Members[0] = "<b>"
	html, files, err := draw(a, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{string(html), files["affinity-1-1.svg"]} {
		if strings.Contains(text, "<script>\x00") || strings.Contains(text, "<script>?") || !strings.Contains(text, "&lt;script&gt;??") || strings.Contains(text, "<b>") {
			t.Errorf("a name is not escaped:\n%s", text)
		}
	}
}

package e2e

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"vitrine/internal/hosttest"
	"vitrine/load/sipp"
)

// A kind is one of the scenarios in testdata.
type kind struct {
	scenario     string
	transactions int           // transactions per call, counted as in the paper: a REGISTER with its challenge is one
	think        time.Duration // pause of the phone between two messages
}

var kinds = []kind{
	{"register", 1, 100 * time.Millisecond},
	{"subscribe", 1, 0},
	{"invite", 2, 200 * time.Millisecond},
	{"cancel", 1, 100 * time.Millisecond},
}

// phones is one SIPp process.
type phones struct {
	*process
	t     testing.TB
	dir   string
	calls int
	kind
}

// A drive is a task for SIPp.
type drive struct {
	target string
	host   int           // host of the phones in the site
	calls  int           // number of calls; 0: until finish
	rate   float64       // calls per second
	open   int           // maximum of open calls; 0: more than the rate needs
	think  bool          // phones pause between messages
	lose   float64       // percent of messages to lose, to force retransmissions
	give   time.Duration // timeout for an answer; 0: 60 s
	tcp    bool          // use one TCP connection, without retransmissions
}

// phone starts a SIPp with retransmissions.
func (s site) phone(k kind, d drive) *phones {
	s.t.Helper()
	scenario, err := filepath.Abs(filepath.Join("testdata", k.scenario+".xml"))
	if err != nil {
		s.t.Fatal(err)
	}
	p := &phones{t: s.t, kind: k, calls: d.calls}
	if p.dir, err = os.MkdirTemp(s.dir, k.scenario+"-"); err != nil {
		s.t.Fatal(err)
	}
	think := time.Duration(0)
	if d.think {
		think = k.think
	}
	if d.give == 0 {
		d.give = time.Minute
	}
	if d.open == 0 { // a call with retransmissions may take seconds
		d.open = 100 + int(d.rate*2)
	}
	args := []string{
		d.target, "-sf", scenario, "-i", s.host(d.host), "-p", strconv.Itoa(s.phonePort()), "-nostdin",
		"-r", strconv.Itoa(int(math.Ceil(d.rate))), "-l", strconv.Itoa(d.open),
		"-d", strconv.FormatInt(think.Milliseconds(), 10), "-recv_timeout", strconv.FormatInt(d.give.Milliseconds(), 10),
		"-default_behaviors", "abortunexp", "-buff_size", strconv.Itoa(8 << 20), "-timeout", "7200s",
		"-watchdog_minor_maxtriggers", "1000000", "-watchdog_major_maxtriggers", "1000000", // continue on a stalled host
		"-cid_str", fmt.Sprintf("%%u-%%p@%s", s.host(d.host)),
		"-trace_err", "-error_file", "errors.log", "-trace_stat", "-stf", "statistics.csv", "-fd", "1",
	}
	if d.tcp {
		args = append(args, "-t", "t1", "-max_reconnect", "1000", "-reconnect_sleep", "50")
	}
	if d.calls > 0 {
		args = append(args, "-m", strconv.Itoa(d.calls))
	}
	if d.lose > 0 {
		args = append(args, "-lost", strconv.FormatFloat(d.lose, 'f', -1, 64))
	}
	p.process = spawn(s.t, "sipp-"+k.scenario, p.dir, []string{"TERM=dumb"}, "sipp", args...)
	return p
}

// check fails the test if a SIPp without a number of calls has ended.
func (p *phones) check() {
	p.t.Helper()
	if p.calls == 0 && !p.running() {
		text, _ := os.ReadFile(filepath.Join(p.dir, "errors.log"))
		p.t.Fatalf("%s ended early: %v: %.3000s", p.name, p.err, text)
	}
}

// finish stops SIPp from starting more calls.
func (p *phones) finish() { p.signal(syscall.SIGUSR1) }

// A tally is the outcome of calls.
type tally struct {
	made, failed, transactions int64
	lost                       []string // Call-IDs of the calls that failed
}

func (t *tally) add(o tally) {
	t.made += o.made
	t.failed += o.failed
	t.transactions += o.transactions
	t.lost = append(t.lost, o.lost...)
}

// wait waits until all calls have ended.
func (p *phones) wait(limit time.Duration) (c tally) {
	p.t.Helper()
	hosttest.Until(p.t, limit, p.name+" ends", func() bool { return !p.running() })
	var err error
	if c.made, c.failed, err = sipp.Totals(filepath.Join(p.dir, "statistics.csv")); err != nil {
		p.t.Fatalf("totals of %s, which ended with %v: %v", p.name, p.err, err)
	}
	if p.calls > 0 && c.made != int64(p.calls) {
		p.t.Errorf("%s made %d calls, want %d", p.name, c.made, p.calls)
	}
	c.transactions = (c.made - c.failed) * int64(p.transactions)
	text, err := os.ReadFile(filepath.Join(p.dir, "errors.log"))
	if err != nil && !os.IsNotExist(err) {
		p.t.Fatal(err)
	}
	c.lost = failures(string(text))
	if c.failed > 0 {
		p.t.Logf("%s: %.3000s", p.name, text)
	}
	if int64(len(c.lost)) != c.failed {
		p.t.Errorf("%s: %d calls failed, but its log names %d: %v", p.name, c.failed, len(c.lost), c.lost)
	}
	return c
}

// failure matches the log line of SIPp 3.6 about a failed call.
var failure = regexp.MustCompile(
	`Aborting call on unexpected message for Call-Id '([^']+)'` +
		`|Call-Id: (\S+), receive timeout on message` +
		`|Aborting call on UDP retransmission timeout for Call-ID '([^']+)'`)

func failures(log string) (ids []string) {
	seen := map[string]bool{}
	for _, m := range failure.FindAllStringSubmatch(log, -1) {
		for _, id := range m[1:] {
			if id != "" && !seen[id] {
				seen[id] = true
				ids = append(ids, id)
			}
		}
	}
	return ids
}

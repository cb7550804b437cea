package sipp

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A call is the result of one call according to SIPp's logs.
type call struct {
	sent     time.Duration // since 1970; 0 if not sent
	answered time.Duration // time of the last response that is no copy, since 1970
	cause    string        // why the call failed; empty if it did not
	failed   time.Duration // time of the failure, since 1970
}

// readLogs reads the results of the job's calls. calls[i] is SIPp's call i+1.
func (j *job) readLogs() ([]call, error) {
	calls := make([]call, j.calls)
	if err := readMessages(filepath.Join(j.folder, shortLog), calls); err != nil {
		return nil, err
	}
	failures, err := readFailures(filepath.Join(j.folder, errorLog), calls)
	if err != nil {
		return nil, err
	}
	made, failed, err := Totals(filepath.Join(j.folder, statLog))
	if err != nil {
		return nil, err
	}
	var sent int64
	for i := range calls {
		if calls[i].sent > 0 {
			sent++
		}
	}
	if made != sent || failed != failures {
		return nil, fmt.Errorf("SIPp counted %d calls and %d failures, but its logs in %s have %d and %d", made, failed, j.folder, sent, failures)
	}
	return calls, nil
}

// readMessages reads the short message log: date, time, seconds since 1970, S or
// R, Call-ID, CSeq and first line, separated by tabs. SIPp also logs copies of a
// final response, even after the end of the call. They do not count.
func readMessages(file string, calls []call) error {
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("read SIPp's messages: %w", err)
	}
	defer f.Close()
	finals := make([][]string, len(calls)) // CSeqs of each call that have a final response
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		fields := bytes.SplitN(lines.Bytes(), []byte("\t"), 7)
		if len(fields) < 7 {
			continue
		}
		i, ok := callNumber(string(fields[4]), len(calls))
		at, err := parseStamp(string(fields[2]))
		if !ok || err != nil {
			continue
		}
		c, final, cseq := &calls[i], &finals[i], string(fields[5])
		switch answered := slices.Index(*final, cseq); {
		case fields[3][0] == 'S':
			if c.sent == 0 {
				c.sent = at
			}
			if answered >= 0 { // a scenario may use a CSeq again after a challenge
				*final = slices.Delete(*final, answered, answered+1)
			}
		case fields[3][0] == 'R' && bytes.HasPrefix(fields[6], []byte("SIP/2.0 ")) && answered < 0:
			c.answered = at
			if !bytes.HasPrefix(fields[6], []byte("SIP/2.0 1")) {
				*final = append(*final, cseq)
			}
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read SIPp's messages: %s: %w", file, err)
	}
	return nil
}

// callNumber returns the index of a call from its Call-ID, which SIPp writes as
// number-pid@host by default.
func callNumber(callID string, calls int) (int, bool) {
	digits, _, ok := strings.Cut(callID, "-")
	n, err := strconv.Atoi(digits)
	return n - 1, ok && err == nil && n >= 1 && n <= calls
}

// parseStamp parses seconds since 1970 with exactly six decimals.
func parseStamp(text string) (time.Duration, error) {
	seconds, micros, ok := strings.Cut(text, ".")
	s, err1 := strconv.ParseInt(seconds, 10, 64)
	us, err2 := strconv.ParseInt(micros, 10, 64)
	if !ok || len(micros) != 6 || err1 != nil || err2 != nil {
		return 0, fmt.Errorf("time %q", text)
	}
	return time.Duration(s)*time.Second + time.Duration(us)*time.Microsecond, nil
}

// failure matches the text that SIPp 3.6 logs when it aborts a call.
var failure = regexp.MustCompile(
	`(?:(\d+\.\d{6}): )?(?:Aborting call on unexpected message for Call-Id '([^']+)': while [^\n]*?received '(?:SIP/2\.0 (\d{3}))?` +
		`|Call-Id: (\S+), receive timeout on message \S+ without label` +
		`|Aborting call on UDP retransmission timeout for Call-ID '([^']+)'` +
		`|Call-Id: (\S+), send timeout on message` +
		`|Aborted call with Call-ID '([^']+)')`)

// readFailures sets the calls' causes from the error log and returns the number
// of failed calls. A missing file means no errors.
func readFailures(file string, calls []call) (int64, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read SIPp's errors: %w", err)
	}
	var named int64
	for _, m := range failure.FindAllStringSubmatch(string(text), -1) {
		id, cause := m[2], m[3]
		switch {
		case m[2] != "" && cause == "":
			cause = "unexpected"
		case m[4] != "":
			id, cause = m[4], "timeout"
		case m[5] != "":
			id, cause = m[5], "timeout"
		case m[6] != "":
			id, cause = m[6], "send"
		case m[7] != "":
			id, cause = m[7], "aborted"
		}
		if i, ok := callNumber(id, len(calls)); ok && calls[i].cause == "" {
			c := &calls[i]
			c.cause = cause
			if c.failed, err = parseStamp(m[1]); err != nil {
				c.failed = max(c.sent, c.answered) // SIPp logged no time, so use the last message's
			}
			named++
		}
	}
	return named, nil
}

// Totals returns SIPp's own counts of calls made and calls failed, from the last
// line of its statistics (-trace_stat).
func Totals(file string) (made, failed int64, err error) {
	f, err := os.Open(file)
	if err != nil {
		return 0, 0, fmt.Errorf("read SIPp's statistics: %w", err)
	}
	defer f.Close()
	r := csv.NewReader(f)
	r.Comma, r.FieldsPerRecord, r.LazyQuotes = ';', -1, true
	rows, err := r.ReadAll()
	if err == nil && len(rows) < 2 {
		err = fmt.Errorf("%d lines: want a line of names and at least one of counts", len(rows))
	}
	if err != nil {
		return 0, 0, fmt.Errorf("read SIPp's statistics: %s: %w", file, err)
	}
	last := rows[len(rows)-1]
	for i, name := range rows[0] {
		if i >= len(last) {
			break
		}
		var into *int64
		switch name {
		case "OutgoingCall(C)":
			into = &made
		case "FailedCall(C)":
			into = &failed
		default:
			continue
		}
		if *into, err = strconv.ParseInt(last[i], 10, 64); err != nil {
			return 0, 0, fmt.Errorf("read SIPp's statistics: %s: %s is %q", file, name, last[i])
		}
	}
	return made, failed, nil
}

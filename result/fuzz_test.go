package result

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"vitrine"
)

// FuzzJournal checks that reading any outcomes.jsonl ends, and that the outcomes can be written
// and read again. The whole part of the file must hold exactly the outcomes that were read.
func FuzzJournal(f *testing.F) {
	line, err := json.Marshal(vitrine.Outcome{
		Key: vitrine.Key{Seq: 1, Attempt: 1, Subject: "bn1s", Repeat: 1, Rate: 50}, Duration: time.Second,
		Scheduled: 50, Failed: map[string]int64{"503": 2}, Use: map[string]vitrine.Use{"bono-1": {}}, Valid: true,
	})
	if err != nil {
		f.Fatal(err)
	}
	whole := string(line) + "\n"
	for _, seed := range []string{"", whole, whole + whole[:40], whole + "\x00\x00\x00", "null\n", "{}\n", "[]\n" + whole, string(line)} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		j, err := readJournal(data, nil)
		if err != nil {
			if _, skipErr := readJournal(data, func(error) {}); skipErr != nil {
				t.Fatalf("read with skip: %v", skipErr)
			}
			return
		}
		if int(j.whole)+j.torn != len(data) {
			t.Fatalf("%d whole and %d torn bytes, want %d in all", j.whole, j.torn, len(data))
		}
		if again, err := readJournal(data[:j.whole], nil); err != nil || !reflect.DeepEqual(again.outcomes, j.outcomes) || again.torn != 0 {
			t.Fatalf("the whole part reads as %+v, %v", again, err)
		}
		for _, o := range j.outcomes {
			text, err := json.Marshal(o)
			if err != nil {
				t.Fatalf("%+v cannot be written: %v", o, err)
			}
			if again, err := parseOutcome(text); err != nil {
				t.Fatalf("%+v reads again as %+v, %v", o, again, err)
			}
		}
		if _, err := formatTable(j.outcomes); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzUsage checks that reading any usage file ends and that no sample has a NaN or infinity. If a
// readable file is cut at the end of a line, the lines before the cut must stay readable.
func FuzzUsage(f *testing.F) {
	for _, seed := range []string{
		"", UsageHeader, UsageHeader + "\n0,a-1,a,1,2,3,4,5,6,7,\n", UsageHeader + "\n0,a-1,a,,,,,,,,\"no, none\"\n1,a",
		"t_s,instance,component\n1e999,a,b\n", "instance,t_s,component,cpu\na,1,b,NaN\n", "\"\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		n := 0
		err := ReadUsage(bytes.NewReader(data), func(s Sample) error {
			n++
			for _, v := range []*float64{&s.Time, s.CPU, s.Memory, s.RxBytes, s.TxBytes, s.Throttled, s.Softirq, s.Steal} {
				if v != nil && !finite(*v) {
					t.Fatalf("%+v", s)
				}
			}
			return nil
		})
		if err != nil || strings.Contains(string(data), `"`) {
			return
		}
		whole := data[:bytes.LastIndexByte(data, '\n')+1]
		again := 0
		if err := ReadUsage(bytes.NewReader(whole), func(Sample) error { again++; return nil }); err != nil {
			t.Fatalf("read only the whole lines: %v", err)
		}
		if again > n || again < n-1 {
			t.Fatalf("%d samples, but %d in the whole lines", n, again)
		}
	})
}

package e2e

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vitrine/internal/truth"
)

// The aims.
const (
	aim        = 0.99 // over all messages of a capture that has all packets
	aimMissing = 0.95 // over SIP, Diameter and GTP-C with 1% of the packets missing
)

// sameClock is the maximum difference between the times of a message in an analysis and in
// the truth.
const sameClock = time.Millisecond

// floors are the minimum precision and recall: the aims, or the current values where these
// are lower, with room for the timing of a busy host. They keep the analysis from getting
// worse.
type floors struct{ whole, missing, twice, second, cut, later float64 }

// floorsOf returns the floors of a recording.
func floorsOf(name string) floors {
	if name == "epc" {
		return floors{whole: 0.99, missing: 0.95, twice: 0.99, second: 0.99, cut: 0.99, later: 0.70}
	}
	return floors{whole: 0.99, missing: 0.95, twice: 0.99, second: 0.99, cut: 0.99, later: 0.88}
}

// Circumstances have further facts about a recording.
type circumstances struct {
	Far    netip.Addr        // where a second capture is made
	Called map[string]string // names of functions, by address
	Keys   []string          // those that were in the store
}

// name returns the name of a function, or "".
func (c *circumstances) name(address string) string { return c.Called[address] }

// prove analyses a capture, and variants that are worse, and compares them with the
// truth.
func prove(t *testing.T, name, file string, messages []observed, of circumstances) {
	t.Helper()
	header, frames := readFrames(t, file)
	keep(t, name, file)
	least := floorsOf(name)
	t.Run("whole", func(t *testing.T) {
		a := analyse(t, file)
		v := judge(a, messages, sameClock, true)
		t.Log(v, a.mistakes(40))
		v.reach(t, "all", v.kinds.Score, least.whole, aim)
		if v.stray+v.missed > 0 {
			t.Errorf("%d messages of the analysis are not in the ground truth, and %d of the ground truth are not in the analysis", v.stray, v.missed)
		}
	})
	t.Run("1% missing", func(t *testing.T) {
		lossy := writeFrames(t, "lossy.pcap", header, without(frames, 0.01, 1))
		keep(t, name+"-lossy", lossy)
		a := analyse(t, lossy)
		v := judge(a, messages, sameClock, false)
		t.Log(v, a.mistakes(20))
		for _, protocol := range []string{truth.SIP, truth.Diameter, truth.GTP} {
			if s, ok := v.protocols.ByType[protocol]; ok {
				v.reach(t, protocol, s, least.missing, aimMissing)
			}
		}
	})
	t.Run("half twice", func(t *testing.T) {
		a := analyse(t, writeFrames(t, "twice.pcap", header, twice(frames, 0.5, 1)))
		v := judge(a, messages, sameClock, true)
		t.Log(v, a.mistakes(20))
		v.reach(t, "all", v.kinds.Score, least.twice, aim)
	})
	t.Run("second capture with a clock off", func(t *testing.T) {
		second := writeFrames(t, "second.pcap", header, seenBy(header, frames, of.Far.As4(), 300*time.Millisecond))
		keep(t, name+"-second", second)
		a := analyse(t, file, second)
		v := judge(a, messages, 2*sameClock, true)
		t.Log(v, a.mistakes(20))
		v.reach(t, "all", v.kinds.Score, least.second, aim)
	})
	t.Run("cut", func(t *testing.T) {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		cut := filepath.Join(t.TempDir(), "cut.pcap")
		if err := os.WriteFile(cut, data[:len(data)/2], 0o644); err != nil {
			t.Fatal(err)
		}
		v := judge(analyse(t, cut), messages, sameClock, false)
		t.Log(v)
		v.reach(t, "all", v.kinds.Score, least.cut, aim)
	})
	t.Run("second half", func(t *testing.T) {
		a := analyse(t, writeFrames(t, "later.pcap", header, frames[len(frames)/2:]))
		v := judge(a, messages, sameClock, false)
		t.Log(v, a.mistakes(20))
		v.reach(t, "all", v.kinds.Score, least.later, aimMissing)
	})
	proveCourses(t, name, file, messages, of)
}

// keepDir is the environment variable that names a folder, in which tests keep captures
// and their truth for TestKept.
const keepDir = "AFFINITY_KEEP"

// keep copies a capture into the folder, if there is one.
func keep(t testing.TB, name, file string) {
	t.Helper()
	dir := os.Getenv(keepDir)
	if dir == "" || strings.HasPrefix(file, dir) {
		return
	}
	data, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".pcap"), data, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A kept is the truth of a capture, as JSON.
type kept struct {
	circumstances
	Messages []keptMessage
}

type keptMessage struct {
	At, Began             int64
	Src, Dst              netip.AddrPort
	Protocol, Class, Kind string
	Again                 bool
}

// keepTruth writes the truth of a capture into the folder, if there is one.
func keepTruth(t testing.TB, name string, messages []observed, of circumstances) {
	t.Helper()
	dir := os.Getenv(keepDir)
	if dir == "" {
		return
	}
	k := kept{circumstances: of}
	for _, m := range messages {
		k.Messages = append(k.Messages, keptMessage{m.at, m.began, m.src, m.dst, m.protocol, m.class, m.kind, m.again})
	}
	data, err := json.Marshal(k)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".truth.json"), data, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestKept makes the proofs with captures that an earlier run has kept.
func TestKept(t *testing.T) {
	dir := os.Getenv(keepDir)
	if dir == "" {
		t.Skipf("%s is not set to a folder with captures", keepDir)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.truth.json"))
	if err != nil || len(files) == 0 {
		t.Skipf("%s has no ground truth: %v", dir, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".truth.json")
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(file)
			var k kept
			if err == nil {
				err = json.Unmarshal(data, &k)
			}
			if err != nil {
				t.Fatal(err)
			}
			var messages []observed
			for _, m := range k.Messages {
				messages = append(messages, observed{
					at: m.At, began: m.Began, src: m.Src, dst: m.Dst, protocol: m.Protocol, class: m.Class, kind: m.Kind, again: m.Again,
				})
			}
			prove(t, name, filepath.Join(dir, name+".pcap"), messages, k.circumstances)
		})
	}
}

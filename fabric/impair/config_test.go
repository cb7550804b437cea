package impair

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"vitrine"
	"vitrine/document"
	"vitrine/fabric"
	"vitrine/fabric/fabrictest"
	"vitrine/fabric/loopback"
)

// read reads the config from a file with the text.
func read(t *testing.T, text string) (Config, error) {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := os.WriteFile("deployment.yaml", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := document.Read("deployment.yaml", "a deployment")
	if err != nil {
		t.Fatal(err)
	}
	return Read(file.Root(), []string{"bono", "sprout"})
}

func TestImpairConfigIsRead(t *testing.T) {
	c, err := read(t, `
delay: 5ms
jitter: 1ms
loss: 0.01
rate: 1.5mbit
links:
  generator: {delay: 20ms, reorder: 0.1, way: out}
  sprout: {rate: 100mbit, queue: 64kiB}
  bono-2: {}
  bono: {delay: 1ms, peers: [sprout-2, generator]}
`)
	if err != nil {
		t.Fatal(err)
	}
	all := Link{Delay: 5 * time.Millisecond, Jitter: time.Millisecond, Loss: 0.01, Rate: 1.5e6, Queue: minQueue, Way: Both}
	for instance, want := range map[string]Link{
		"bono-1":    {Delay: time.Millisecond, Peers: []string{"sprout-2", "generator"}, Way: Both},
		"homer-1":   all,
		"bono-2":    {Way: Both},
		"generator": {Delay: 20 * time.Millisecond, Reorder: 0.1, Way: Out},
		"sprout-1":  {Rate: 100e6, Queue: 65536, Way: Both},
		"sprout-12": {Rate: 100e6, Queue: 65536, Way: Both},
	} {
		if got := c.linkOf(fabric.Port{Instance: instance}); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", instance, got, want)
		}
	}
	// Instances of aggregates have the aggregate's name in front of the component's.
	member := fabric.Port{Instance: "voice-3-sprout-1", Component: "sprout"}
	if got := c.linkOf(member); got.Rate != 100e6 || !(Link{Peers: []string{"sprout"}}).meets(member) {
		t.Errorf("%s: got %+v, want the link of its component", member.Instance, got)
	}
	if c.seed("bono-1") == c.seed("bono-2") {
		t.Error("two links have the same seed")
	}
}

// TestImpairVariants checks that a variant replaces all links.
func TestImpairVariants(t *testing.T) {
	c, err := read(t, `
delay: 5ms
links: {bono: {}}
variants:
  near: {}
  far: {delay: 1ms, links: {sprout: {delay: 30ms, way: in}}}
`)
	if err != nil {
		t.Fatal(err)
	}
	for variant, want := range map[string][2]time.Duration{"": {0, 5 * time.Millisecond}, "near": {0, 0}, "far": {time.Millisecond, 30 * time.Millisecond}} {
		of := c.Of(variant)
		if got := [2]time.Duration{of.linkOf(fabric.Port{Instance: "bono-1"}).Delay, of.linkOf(fabric.Port{Instance: "sprout-1"}).Delay}; got != want {
			t.Errorf("%q: got %v, want %v", variant, got, want)
		}
	}
}

func TestImpairBadInput(t *testing.T) {
	for text, want := range map[string]string{
		"delay: -5ms":                        "deployment.yaml:1:8",
		"delay: 5":                           "deployment.yaml:1:8",
		"delay: 11s":                         "deployment.yaml:1:8: delay: 11s: want 0s to 10s",
		"delay: 1ms\njitter: 2ms":            "deployment.yaml:2:9: jitter: 2ms of a delay of 1ms",
		"loss: 1.5":                          "deployment.yaml:1:7",
		"loss: 1%":                           "deployment.yaml:1:7",
		"reorder: 0.1":                       "deployment.yaml:1:10: reorder: no delay with it",
		"rate: 100":                          "deployment.yaml:1:7",
		"rate: 100Mbps":                      "deployment.yaml:1:7",
		"rate: 5bit":                         "deployment.yaml:1:7: rate: 5bit: want 1kbit to 1000gbit",
		"queue: 64kiB":                       "deployment.yaml:1:8: queue: no rate with it",
		"rate: 1mbit\nqueue: 1kB":            "deployment.yaml:2:8: queue: 1000 bytes: want at least 1514",
		"way: back":                          "deployment.yaml:1:6",
		"latency: 5ms":                       "deployment.yaml:1:1",
		"links: {sproutt: {delay: 1ms}}":     "deployment.yaml:1:18: no component or instance sproutt: want one of generator, bono, sprout",
		"links:\n  bono-1: {loss: 2}":        "deployment.yaml:2:18",
		"links:\n  bono: {jitter: 1ms}":      "deployment.yaml:2:18: jitter: 1ms of a delay of 0s",
		"by: tc":                             "deployment.yaml:1:5",
		"delay: 1ms\njitter: 1ms\nby: netem": "deployment.yaml:3:5: by: netem with jitter, rate or peers",
		"links: {bono-one: {delay: 1ms}}":    "deployment.yaml:1:19: no component or instance bono-one",
		"links: {bono-01: {delay: 1ms}}":     "deployment.yaml:1:18: no component or instance bono-01",
		"peers: [bonno]":                     "deployment.yaml:1:8: no component or instance bonno: want one of generator, bono, sprout",
		"peers: [generator-1]":               "deployment.yaml:1:8: no component or instance generator-1",
		"links: {generator-1: {loss: 1}}":    "deployment.yaml:1:22: no component or instance generator-1",
		"rate: 0kbit":                        "deployment.yaml:1:1: rate \"0kbit\": want more than 0",
		"links: {bono: {peers: [spr-1]}}":    "deployment.yaml:1:23: no component or instance spr-1",
		"variants: {far: {loss: 2}}":         "deployment.yaml:1:24",
		"variants: {far: {jitter: 1ms}}":     "deployment.yaml:1:26: jitter: 1ms of a delay of 0s",
		"variants: {far: {links: {x: {}}}}":  "deployment.yaml:1:29: no component or instance x",
		"variants: {far: {peers: [x]}}":      "deployment.yaml:1:25: no component or instance x",
		"by: netem\nvariants: {f: {delay: 1ms, jitter: 1ms}}": "deployment.yaml:2:15: by: netem with jitter",
		"cpu: 100000": "deployment.yaml:1:6: cpu: 100000",
	} {
		if _, err := read(t, text); !vitrine.IsBadInput(err) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: got error %v, want %s", text, err, want)
		}
	}
	run := fabrictest.NewRun(t, t.TempDir()+"/runs")
	if _, err := wrap(run, Config{Link: Link{Loss: 2}}, loopback.New(loopback.Config{Run: run}), nil); !vitrine.IsBadInput(err) {
		t.Errorf("loss of 2: got %v, want BadInput", err)
	}
}

// TestImpairOrders checks that the emulator gets a link exactly as it was read.
func TestImpairOrders(t *testing.T) {
	want := order{Add: &addition{Instance: "sprout-1", Outer: "o1", Inner: "i1", Seed: 1<<63 + 1, Link: Link{
		Delay: 5 * time.Millisecond, Jitter: 1, Loss: 0.1, Reorder: 1e-9, Rate: 1234567, Queue: 65536, Way: Out,
	}}}
	line, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got order
	if err := json.Unmarshal(line, &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("order %s decoded as %+v, error %v", line, got.Add, err)
	}
}

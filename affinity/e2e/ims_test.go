package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"vitrine/internal/hosttest"
	"vitrine/load"
	"vitrine/store/kv"
)

// startIMS starts the reference IMS: one Bono, two Sprouts that keep their state in a
// store over HTTP, Homestead, Homer and Ralf.
func (s *site) startIMS() {
	s.t.Helper()
	s.place("bono", "sprout-1", "sprout-2", "homestead", "homer", "ralf", "store", "phones-1", "phones-2", "phones-3")
	at := func(name string, port int) string { return s.places[name].at(port) }
	const slow = "60s" // a busy test host must not count as overload, or as an outage
	s.start("store", "store", "--listen", at("store", 8070), "--dir", s.t.TempDir())
	s.function("homestead", "homestead", "--listen", at("homestead", 8888))
	s.function("homer", "homer", "--listen", at("homer", 7888))
	s.function("ralf", "ralf", "--listen", at("ralf", 1080))
	for _, name := range []string{"sprout-1", "sprout-2"} {
		s.function(name, "sprout", "--listen", at(name, 5054), "--homestead", at("homestead", 8888), "--homer", at("homer", 7888),
			"--ralf", at("ralf", 1080), "--store", "http://"+at("store", 8070), "--overload", "off", "--queue", "10000",
			"--store-timeout", slow, "--homestead-timeout", slow, "--timeout", slow)
	}
	s.function("bono", "bono", "--listen", at("bono", 5060), "--sprout", at("sprout-1", 5054)+","+at("sprout-2", 5054), "--overload", "off",
		"--timeout", slow, "--aside-after", "100000")
}

// callIMS plays registrations, subscriptions and calls at once, each at a rate per second.
func (s *site) callIMS(rate float64, duration time.Duration) {
	s.t.Helper()
	var group errgroup.Group
	for n, scenario := range []string{"reg-dereg", "reg-subscribe", "reg-invite"} {
		trial := load.Trial{
			Rate: rate, Duration: duration.Seconds(), Targets: []string{s.places["bono"].at(5060)}, Scratch: s.dir, Seed: uint64(n + 1),
			Params: map[string]string{
				"scenario": scenario, "arrivals": "poisson", "retransmit": "true", "timeout": "60s", "hold": "2s",
				"first_user": fmt.Sprint(1 + 50_000*n), "messages": s.log("phones"),
			},
		}
		text, err := json.Marshal(trial)
		if err != nil {
			s.t.Fatal(err)
		}
		cmd := s.command(fmt.Sprintf("phones-%d", n+1), "sip", string(text))
		group.Go(func() error {
			out, err := cmd.Output()
			if err != nil {
				if failed, ok := errors.AsType[*exec.ExitError](err); ok {
					err = fmt.Errorf("%w: %s", err, failed.Stderr)
				}
				return fmt.Errorf("%s: %w", scenario, err)
			}
			var report load.Report
			if err := json.Unmarshal(out, &report); err != nil {
				return err
			}
			s.t.Logf("%s: offered %d calls, %d succeeded, failed: %v", scenario, report.Offered, report.Succeeded, report.Failed)
			if report.Succeeded == 0 {
				return fmt.Errorf("%s: no call succeeded", scenario)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		s.t.Fatal(err)
	}
}

// keys returns the keys in the store of the Sprouts.
func (s *site) keys() (keys []string) {
	s.t.Helper()
	for after := ""; ; {
		answer, err := s.ask("store", 8070, "GET /kv?space=sprout&limit=1000&after="+url.QueryEscape(after))
		if err != nil {
			s.t.Fatal(err)
		}
		_, body, _ := strings.Cut(answer, "\r\n\r\n")
		var page kv.List
		if err := json.Unmarshal([]byte(body), &page); err != nil {
			s.t.Fatalf("%v: %.200q", err, answer)
		}
		for _, e := range page.Records {
			keys = append(keys, e.Key)
		}
		if after = page.Next; after == "" {
			return keys
		}
	}
}

// recordIMS returns a capture of an IMS, its messages with the truth, and the keys that
// were in the store at the end.
func recordIMS(t *testing.T) (s *site, file string, messages []observed, keys []string) {
	t.Helper()
	s = newSite(t, nil)
	var finish func()
	file, finish = s.capture("ims") // before any connection is made
	s.startIMS()
	// Functions that get no CPU send charging records so late that the user's next transaction
	// has begun.
	if hosttest.Raced {
		s.callIMS(8, 12*time.Second)
	} else {
		s.callIMS(25, 4*time.Second)
	}
	s.settle(file)
	keys = s.keys()
	s.stop()
	finish()
	messages = observe(t, file)
	readLogs(t, s.logs).label(messages)
	t.Log(summary(messages))
	return s, file, messages, keys
}

// TestIMSIsUnderstood checks that the logs of the IMS have exactly the messages of
// the capture, and give each its network event.
func TestIMSIsUnderstood(t *testing.T) {
	s, file, messages, keys := recordIMS(t)
	kinds := map[string]int{}
	for _, m := range messages {
		kinds[m.kind]++
	}
	for _, kind := range []string{"REGISTER", "DEREGISTER", "SUBSCRIBE", "INVITE"} {
		if kinds[kind] < 100 {
			t.Errorf("got %d messages of %s, want at least 100", kinds[kind], kind)
		}
	}
	of := circumstances{Far: s.places["sprout-1"].addr, Called: s.called(), Keys: keys}
	keepTruth(t, "ims", messages, of)
	prove(t, "ims", file, messages, of)
}

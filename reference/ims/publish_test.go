package ims_test

import (
	"encoding/json"
	"strings"
	"testing"

	"vitrine/reference/ims"
	"vitrine/store/client"
)

// published returns the messages of transactions that are in the Sprouts' store, by
// method and kind, such as "REGISTER answer".
func (s site) published() map[string][]string {
	s.t.Helper()
	c, err := client.New(client.Config{Base: s.store})
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close()
	page, err := c.KV("sprout").Page(s.t.Context(), "tx/", "", 1000, true)
	if err != nil {
		s.t.Fatal(err)
	}
	found := map[string][]string{}
	for _, e := range page.Records {
		parts := strings.Split(e.Key, "/") // tx, branch, sender, method, kind
		var record struct{ Message string }
		if err := json.Unmarshal(e.Value, &record); err != nil || len(parts) != 5 {
			s.t.Fatalf("%s: %q: %v", e.Key, e.Value, err)
		}
		what := parts[3] + " " + parts[4]
		found[what] = append(found[what], record.Message)
	}
	return found
}

// awaitPublished waits until a number of messages of a kind are in the store, which all
// have a first line that begins with the text. A message may be published after it was sent.
func (s site) awaitPublished(what string, n int, begins string) {
	s.t.Helper()
	var got []string
	eventually(s.t, what+" is published", func() bool {
		got = s.published()[what]
		return len(got) >= n
	})
	if len(got) != n {
		s.t.Errorf("%d messages of %s are published, want %d", len(got), what, n)
	}
	for _, message := range got {
		if !strings.HasPrefix(message, begins) {
			s.t.Errorf("%s: got %.40q, want %s...", what, message, begins)
		}
	}
}

// TestPublishAll checks that a Sprout writes the messages of each transaction into its
// store with --publish all, and none without it.
func TestPublishAll(t *testing.T) {
	t.Parallel()
	s := newStoreSite(t)
	s.homesteads(1)
	start(t, "sprout", s.sprout(0, 2, 1)...)
	start(t, "sprout", append(s.sprout(1, 2, 1), "--publish", "all")...)
	persistent, all := s.bono(1, s.at(11, 5060)), s.bono(2, s.at(12, 5060))

	s.phone(41, 7, persistent).signIn(60)
	if got := s.published(); len(got) != 0 {
		t.Errorf("without the option, transactions are published: %v", got)
	}

	caller, callee := s.phone(42, 8, all), s.phone(43, 9, all)
	caller.signIn(60)
	s.awaitPublished("REGISTER request", 2, "REGISTER sip:"+ims.Domain)
	s.awaitPublished("REGISTER answer", 2, "SIP/2.0 ")
	callee.signIn(60)
	talk(t, caller, callee, caller)
	s.awaitPublished("INVITE request", 1, "INVITE "+ims.PublicID(callee.user))
	s.awaitPublished("INVITE forwarded", 1, "INVITE "+callee.contact())
	s.awaitPublished("INVITE answer", 1, "SIP/2.0 200")
	s.awaitPublished("BYE forwarded", 1, "BYE "+callee.contact())
	s.awaitPublished("BYE answer", 1, "SIP/2.0 200")
	if got := s.published()["REGISTER forwarded"]; len(got) != 0 {
		t.Errorf("a request that this Sprout answers is published as forwarded: %q", got)
	}
}

// TestPublishAllWithoutAnswer checks that the 408 for a callee that does not answer is
// published.
func TestPublishAllWithoutAnswer(t *testing.T) {
	t.Parallel()
	s := newStoreSite(t)
	s.homesteads(1)
	start(t, "sprout", append(s.sprout(0, 1, 1), "--publish", "all", "--timeout", "1s")...)
	bono := s.bono(1, s.at(11, 5060))
	caller, callee := s.phone(41, 8, bono), s.phone(42, 9, bono)
	caller.signIn(60)
	callee.signIn(60)
	message := caller.ask("MESSAGE", ims.PublicID(callee.user), "To: <"+ims.PublicID(callee.user)+">", "Call-ID: unanswered")
	callee.expect("MESSAGE")
	caller.want(message.final(), 408)
	s.awaitPublished("MESSAGE answer", 1, "SIP/2.0 408")
}

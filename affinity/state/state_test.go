package state

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"vitrine/affinity/correlate"
	"vitrine/affinity/message"
)

func access(c *Collector, event uint64, kind, function, key string, write bool, bytes int) {
	number := event // of the message
	if write {
		number += 1000
	}
	c.Add(&message.Message{ID: number, From: function, To: "Store", Access: []message.Access{to(key, write, bytes)}}, correlate.Link{Event: event, Type: kind})
}

// to returns an access to a key.
func to(key string, write bool, bytes int) message.Access {
	hash := uint64(17)
	for _, b := range []byte(key) {
		hash = hash*131 + uint64(b)
	}
	return message.Access{Store: "Store", Key: message.Identifier{Hash: hash, Text: []byte(key)}, Write: write, Bytes: bytes, Lifetime: 40 * time.Second}
}

// TestKeysReadInALaterTransactionAreShared: the registration that wrote a challenge reads
// it, a later subscription reads the registration, and nobody reads a timer.
func TestKeysReadInALaterTransactionAreShared(t *testing.T) {
	c := New(0)
	for u := range 10 {
		register, subscribe := uint64(2*u+1), uint64(2*u+2)
		user := fmt.Sprintf("sub%06d@ims.test", u)
		access(c, register, "REGISTER", "Sprout", "challenge/"+user, true, 100)
		access(c, register, "REGISTER", "Sprout", "challenge/"+user, false, 0)
		access(c, register, "REGISTER", "Sprout", "reg/"+user, true, 300)
		access(c, register, "REGISTER", "Sprout", fmt.Sprintf("due/%d/reg/%s", 1700000000+u, user), true, 10)
		access(c, subscribe, "SUBSCRIBE", "Sprout", "reg/"+user, false, 0)
	}
	s := c.State()
	got := ""
	for _, f := range s.Forms {
		got += fmt.Sprintf("%s %s: %d shared, %d private, %d unread, %d+%d operations, %d B, saved %d, %d B, %s, by %v %v\n", f.Function, f.Key,
			f.Shared, f.Private, f.Unread, f.Writes, f.Reads, f.Bytes, f.Saved, f.SavedBytes, f.Lifetime(), f.WrittenBy, f.ReadBy)
	}
	want := `Sprout challenge/{}: 0 shared, 10 private, 0 unread, 10+10 operations, 1000 B, saved 20, 1000 B, 40s, by [REGISTER] [REGISTER]
Sprout due/{}/reg/{}: 0 shared, 0 private, 10 unread, 10+0 operations, 100 B, saved 0, 0 B, 40s, by [REGISTER] []
Sprout reg/{}: 10 shared, 0 private, 0 unread, 10+10 operations, 3000 B, saved 0, 0 B, 40s, by [REGISTER] [SUBSCRIBE]
`
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if !c.IsStore("Store") || c.IsStore("Sprout") {
		t.Error("IsStore does not find the right function")
	}
}

// TestWhatATransactionMissesIsNotShared: in the steps, transactions 1 and 2 read (r) and
// write (w) a key, write it and use its old value (x), or check and write it in one batch (b). The answer to a read says that there
// is none (m), reports another failure (e), has a value (f), or is not captured.
func TestWhatATransactionMissesIsNotShared(t *testing.T) {
	for steps, want := range map[string]string{
		"r1 m1 w1 r1": "private", "r1 m1 r1 m1 w1": "private", "w1 r1 w2 r2": "private", "w1": "unread",
		"r1 f1 w1": "shared", "r1 w1 m1": "shared", "r1 r1 m1 w1": "shared", "r1 f1 r1 m1 w1": "shared",
		"b1": "private", "r1 m1 b1": "private", "r1 f1 b1": "shared", "r1 e1 w1": "shared",
		"r1 m1 w2 r2": "shared", "r1 r2 w2 r2": "shared", "r1 m1 w1 r2": "shared", "r1": "shared",
		"w1 x1": "private", "w1 x2": "shared", "x1": "shared",
	} {
		const record = "reg/sub000001"
		causes := map[byte]string{'m': "404", 'e': "503", 'f': ""}
		c := New(0)
		for _, s := range strings.Fields(steps) {
			event := uint64(s[1] - '0')
			switch s[0] {
			case 'r', 'w':
				access(c, event, "REGISTER", "Sprout", record, s[0] == 'w', 0)
			case 'x':
				taken := to(record, true, 0)
				taken.Reads = true
				c.Add(&message.Message{ID: event + 1000, From: "Sprout", To: "Store", Access: []message.Access{taken}}, correlate.Link{Event: event, Type: "REGISTER"})
			case 'b':
				both := []message.Access{to(record, false, 0), to(record, true, 0)}
				c.Add(&message.Message{ID: event + 1000, From: "Sprout", To: "Store", Access: both}, correlate.Link{Event: event, Type: "REGISTER"})
			default:
				cause := causes[s[0]]
				c.Add(&message.Message{Kind: message.Answer, Answers: event, Failed: cause != "", Cause: cause}, correlate.Link{Event: event})
			}
		}
		f := c.State().Forms[0]
		if got := map[string]int{"shared": f.Shared, "private": f.Private, "unread": f.Unread}; got[want] != 1 || f.Keys != 1 {
			t.Errorf("%s: got %v, want %s", steps, got, want)
		}
		if len(c.asked) > 0 {
			t.Errorf("%s: %d reads still wait for an answer", steps, len(c.asked))
		}
	}
}

func TestKeysAreBounded(t *testing.T) {
	c := New(100 * keySize)
	for u := range 1000 {
		access(c, uint64(u), "REGISTER", "Sprout", fmt.Sprintf("reg/sub%06d", u), true, 1)
		if len(c.keys) > 100 {
			t.Fatalf("got %d keys, want at most 100", len(c.keys))
		}
	}
	if s := c.State(); s.GivenUp != 900 || s.Forms[0].Keys != 1000 {
		t.Errorf("%+v", s)
	}
}

// TestUsesAreBounded accesses a few keys by as many functions as are kept. The limit must count what a
// key holds for each function. Keys that are given up must lose no operations.
func TestUsesAreBounded(t *testing.T) {
	const limit, keys = 200 * keySize, 16
	c := New(limit)
	for f := range maxForms {
		for u := range keys {
			access(c, uint64(u+1), "REGISTER", fmt.Sprint("function", f), fmt.Sprintf("reg/sub%06d", u), true, 1)
			held := 0
			for _, at := range c.keys {
				held += keySize + useSize*(len(at.Value.(*key).uses)-1)
			}
			if held > limit || held != c.bytes {
				t.Fatalf("%d keys hold %d bytes but count as %d, want at most %d", len(c.keys), held, c.bytes, limit)
			}
		}
	}
	s := c.State()
	if s.GivenUp == 0 || s.Unformed != 0 {
		t.Errorf("gave up %d keys and missed %d operations, want some and none", s.GivenUp, s.Unformed)
	}
	writes := 0
	for _, f := range s.Forms {
		writes += f.Writes
	}
	if writes != maxForms*keys || c.bytes != 0 {
		t.Errorf("got %d writes and %d bytes left, want %d and 0", writes, c.bytes, maxForms*keys)
	}
}

func TestFormsOfKeys(t *testing.T) {
	for key, want := range map[string]string{
		"reg/sip:sub000001@ims.test":                     "reg/sip:{}",
		"reg/sip:sub000001@192.0.2.7:5060;transport=udp": "reg/sip:{}",
		"due/1700000000/reg/sip:sub000001@ims.test":      "due/{}/reg/sip:{}",
		"session:4711:0815":                              "session:{}",
		"session:4711:0815:data":                         "session:{}:data",
		"192.0.2.1:6379/users":                           "{}/users",
		"profile/001010000000001":                        "profile/{}",
		"tmsi/deadbeef":                                  "tmsi/{}",
		"tmsi/c0ffeeab/feed":                             "tmsi/{}/feed",
		"session/abcdefab-cdef-a0cd-eb":                  "session/{}",
		strings.Repeat("words/", 20) + "001010000000001": strings.Repeat("words/", 20)[:maxForm],
	} {
		if got := FormOf(key); got != want {
			t.Errorf("form of %s: got %s, want %s", key, got, want)
		}
	}
}

// FuzzFormOf checks that a form reveals nothing about a user: it contains no value, and is
// the same for all users.
func FuzzFormOf(f *testing.F) {
	for _, key := range []string{"reg/sip:sub000001@ims.test", "auth/sip:sub000001@ims.test", "due/1700000000/reg/sip:sub000001@ims.test", "sip:alice@192.0.2.7:5060;transport=udp",
		"session:4711:0815:data", "imsi-001010000000001", "tel:+15550100", "global/timers", "{}:{}/x", "tmsi/deadbeef", "caf\u00e9", "a b\x00\xff"} {
		f.Add(key, "001010000000001")
		f.Add("reg", key)
	}
	f.Fuzz(func(t *testing.T, key, user string) {
		form := FormOf(key)
		if len(form) > maxForm {
			t.Fatalf("form %q has %d bytes", form, len(form))
		}
		if len(form) < maxForm { // else a part may be cut
			for _, part := range strings.FieldsFunc(form, func(r rune) bool { return r == '/' || r == ':' }) {
				if differs(part) {
					t.Errorf("form %q of key %q contains the value %q", form, key, part)
				}
			}
			if again := FormOf(form); again != form {
				t.Errorf("form of the form %q: got %q", form, again)
			}
		}
		value := strings.NewReplacer("/", "", ":", "").Replace(user) + "@ims.test"
		if one, other := FormOf(key+"/"+value), FormOf(key+"/{}"); one != other {
			t.Errorf("got form %q for the value %q, %q for other values", one, value, other)
		}
	})
}

package state

import (
	"fmt"
	"testing"
	"time"

	"vitrine/affinity/correlate"
	"vitrine/affinity/message"
)

func access(c *Collector, event uint64, kind, function, key string, write bool, bytes int) {
	hash := uint64(17)
	for _, b := range []byte(key) {
		hash = hash*131 + uint64(b)
	}
	c.Add(&message.Message{From: function, To: "Store", Access: []message.Access{{Store: "Store", Key: message.Identifier{Hash: hash, Text: []byte(key)},
		Write: write, Bytes: bytes, Lifetime: 40 * time.Second}}}, correlate.Link{Event: event, Type: kind})
}

// TestKeysReadInALaterTransactionAreShared: a challenge is read in the registration that
// wrote it, the registration in the subscription after it, and a timer by nobody.
func TestKeysReadInALaterTransactionAreShared(t *testing.T) {
	c := New(0)
	for u := range 10 {
		register, subscribe := uint64(2*u+1), uint64(2*u+2)
		user := fmt.Sprintf("sub%06d@ims.test", u)
		access(c, register, "REGISTER", "Sprout", "challenge/"+user, true, 100)
		access(c, register, "REGISTER", "Sprout", "challenge/"+user, false, 100)
		access(c, register, "REGISTER", "Sprout", "reg/"+user, true, 300)
		access(c, register, "REGISTER", "Sprout", fmt.Sprintf("due/%d/reg/%s", 1700000000+u, user), true, 10)
		access(c, subscribe, "SUBSCRIBE", "Sprout", "reg/"+user, false, 300)
	}
	s := c.State()
	got := ""
	for _, f := range s.Forms {
		got += fmt.Sprintf("%s %s: %d shared, %d private, %d unread, %d+%d operations, %d B, saved %d, %d B, %s, by %v %v\n", f.Function, f.Key,
			f.Shared, f.Private, f.Unread, f.Writes, f.Reads, f.Bytes, f.Saved, f.SavedBytes, f.Lifetime(), f.WrittenBy, f.ReadBy)
	}
	want := `Sprout challenge/{}: 0 shared, 10 private, 0 unread, 10+10 operations, 2000 B, saved 20, 2000 B, 40s, by [REGISTER] [REGISTER]
Sprout due/{}/reg/{}: 0 shared, 0 private, 10 unread, 10+0 operations, 100 B, saved 0, 0 B, 40s, by [REGISTER] []
Sprout reg/{}: 10 shared, 0 private, 0 unread, 10+10 operations, 6000 B, saved 0, 0 B, 40s, by [REGISTER] [SUBSCRIBE]
`
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if !c.IsStore("Store") || c.IsStore("Sprout") {
		t.Error("the store is not found")
	}
}

func TestKeysAreBounded(t *testing.T) {
	c := New(100 * keySize)
	for u := range 1000 {
		access(c, uint64(u), "REGISTER", "Sprout", fmt.Sprintf("reg/sub%06d", u), true, 1)
		if len(c.keys) > 100 {
			t.Fatalf("%d keys", len(c.keys))
		}
	}
	if s := c.State(); s.GivenUp != 900 || s.Forms[0].Keys != 1000 {
		t.Errorf("%+v", s)
	}
}

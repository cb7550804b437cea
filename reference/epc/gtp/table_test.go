package gtp_test

import (
	"testing"

	director "vitrine/director/gtpc"
	"vitrine/reference/epc/gtp"
)

// TestTEIDsAreWhatADirectorSteersBy checks that the director's own rule gives the
// same prefix and key.
func TestTEIDsAreWhatADirectorSteersBy(t *testing.T) {
	for _, c := range []struct {
		kind, instance uint8
		imsi           string
	}{{1, 1, "001010000000001"}, {7, 127, "999990000000000"}, {2, 64, "262011234567890"}} {
		table := gtp.NewTable[int](10, gtp.Prefix{Type: c.kind, Instance: c.instance})
		teid, ok := table.Add([]byte(c.imsi), 1)
		prefix, valid := director.PrefixOf(c.kind, uint16(c.instance))
		want := prefix.SessionTEID(director.SessionKey([]byte(c.imsi)), teid)
		if !ok || !valid || teid != want {
			t.Errorf("%+v: got TEID %#x, %v, but a director uses %#x, %v", c, teid, ok, want, valid)
		}
	}
}

func TestTablesAreBounded(t *testing.T) {
	table := gtp.NewTable[int](3, gtp.Prefix{})
	var last uint32
	for i := range 4 {
		teid, ok := table.Add(nil, i)
		if ok != (i < 3) || ok && teid == 0 {
			t.Errorf("session %d: got TEID %d, %v", i, teid, ok)
		}
		if ok {
			last = teid
		}
	}
	table.Remove(last)
	if teid, ok := table.Add(nil, 9); !ok || teid == last {
		t.Errorf("got TEID %d, %v; %d was just removed", teid, ok, last)
	}
	if v, ok := table.Get(last); ok {
		t.Errorf("the removed TEID returned %d", v)
	}
}

// TestRestartedNodeBeginsWithAnotherTEID has a peer use a TEID of the node's last run.
func TestRestartedNodeBeginsWithAnotherTEID(t *testing.T) {
	old, _ := gtp.NewTable[int](1, gtp.Prefix{}).Add(nil, 1)
	restarted := gtp.NewTable[int](1, gtp.Prefix{})
	if _, ok := restarted.Add(nil, 2); !ok {
		t.Fatal("got no TEID")
	}
	if v, ok := restarted.Get(old); ok {
		t.Errorf("the TEID %#x of the last run returned session %d", old, v)
	}
}

// TestOneKeyHasSoManyTEIDs checks the room below prefix and key.
func TestOneKeyHasSoManyTEIDs(t *testing.T) {
	table := gtp.NewTable[int](1<<20, gtp.Prefix{Type: 1, Instance: 1})
	n := 0
	for ; n <= 2000; n++ {
		if _, ok := table.Add([]byte("001010000000001"), n); !ok {
			break
		}
	}
	if n != 1024 || table.Len() != n {
		t.Errorf("got %d TEIDs, %d sessions", n, table.Len())
	}
	if _, ok := table.Add([]byte("001010000000002"), n); !ok {
		t.Error("got no TEID for another subscriber")
	}
}

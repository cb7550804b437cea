package s1ap_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"vitrine/wire/s1ap"
	"vitrine/wire/wiretest"
)

// TestTshark compares fields of all golden messages with tshark's reading.
func TestTshark(t *testing.T) {
	var names []string
	var messages [][]byte
	for name, b := range golden(t) {
		names, messages = append(names, name), append(messages, b)
	}
	rows := wiretest.Fields(t, "s1ap", messages, "s1ap.procedureCode", "s1ap.protocolIEs", "s1ap.id", "s1ap.MME_UE_S1AP_ID",
		"s1ap.ENB_UE_S1AP_ID", "s1ap.gTP_TEID", "s1ap.e_RAB_ID", "s1ap.qCI", "s1ap.dL_gTP_TEID", "s1ap.uL_GTP_TEID")
	for i, row := range rows {
		var m s1ap.Message
		if err := m.Parse(messages[i]); err != nil {
			t.Fatal(err)
		}
		want := make([][]string, len(row))
		add := func(field int, v uint64) {
			text := strconv.FormatUint(v, 10)
			if field == 5 || field > 7 { // an octet string
				text = fmt.Sprintf("%08x", v)
			}
			want[field] = append(want[field], text)
		}
		add(0, uint64(m.Procedure))
		count := uint64(0)
		walk := func(e s1ap.Elements) {
			for e.Next() {
				add(2, uint64(e.ID))
				if x, ok := value(e.ID, e.Value); ok {
					fields(add, e.ID, x)
				}
			}
		}
		for e := m.Elements(); e.Next(); count++ {
			add(2, uint64(e.ID))
			x, ok := value(e.ID, e.Value)
			if !ok {
				t.Errorf("%s: cannot parse element %d", names[i], e.ID)
			}
			if _, ok := lists(e.ID, e.Value); ok {
				walk(s1ap.List(e.Value))
			}
			fields(add, e.ID, x)
		}
		add(1, count)
		for f := range row {
			if got := strings.Join(want[f], ","); got != row[f] {
				t.Errorf("%s: field %d: got %s, tshark has %s", names[i], f, got, row[f])
			}
		}
	}
}

// fields adds the fields that tshark shows for a value.
func fields(add func(int, uint64), id s1ap.ID, x any) {
	switch x := x.(type) {
	case uint32:
		if id == s1ap.ENBUEID {
			add(4, uint64(x))
		} else {
			add(3, uint64(x))
		}
	case []any:
		if id == s1ap.ResetType || id == s1ap.ResetConnections {
			for _, item := range x {
				c := item.(s1ap.Connection)
				add(2, uint64(s1ap.ConnectionItem))
				for range 2 { // tshark repeats them in a summary
					if c.HasMME {
						add(3, uint64(c.MME))
					}
					if c.HasENB {
						add(4, uint64(c.ENB))
					}
				}
			}
		}
		if id == s1ap.UEIDs {
			for range 2 { // tshark repeats them in a summary
				add(3, uint64(x[0].(uint32)))
				if x[2].(bool) {
					add(4, uint64(x[1].(uint32)))
				}
			}
		}
	case s1ap.ERAB:
		add(6, uint64(x.ID))
		for i, tunnel := range []s1ap.Tunnel{x.Tunnel, x.ForwardDown, x.ForwardUp} {
			if tunnel.TEID != 0 {
				add([]int{5, 8, 9}[i], uint64(tunnel.TEID))
			}
		}
		if x.QoS.QCI != 0 {
			add(7, uint64(x.QoS.QCI))
		}
	}
}

package homestead

import (
	"encoding/json"
	"encoding/xml"
	"runtime"
	"testing"
	"time"

	"vitrine/reference/ims"
)

func TestProvisioning(t *testing.T) {
	row := provision(100)
	for key, want := range map[string]bool{
		"impi/sub000099@ims.test":      true,
		"impi/sub000099":               true, // clients may leave the domain out
		"impu/sip:sub000099@ims.test":  true,
		"impu/sub000099@ims.test":      false, // a public identity is a URI
		"impi/sub000100@ims.test":      false,
		"impu/sip:sub000100@ims.test":  false,
		"impi/sub000099@elsewhere":     false,
		"impi/bob@ims.test":            false,
		"other/sip:sub000099@ims.test": false,
		"":                             false,
	} {
		if value, ok := row(key); ok != want || ok != json.Valid(value) {
			t.Errorf("row %q: got %t, %s", key, ok, value)
		}
	}
	value, _ := row("impi/sub000007@ims.test")
	var c credential
	if err := json.Unmarshal(value, &c); err != nil || c.HA1 != ims.HA1("sub000007@ims.test") || c.Public[0] != "sip:sub000007@ims.test" {
		t.Errorf("got %s, error %v", value, err)
	}
}

// TestProvisioningIsLazy checks that subscribers that never change cost no
// memory.
func TestProvisioningIsLazy(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	row := provision(100_000_000)
	if _, ok := row("impi/sub99999999@ims.test"); !ok {
		t.Error("the last subscriber was not found")
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 1<<20 {
		t.Errorf("used %d bytes for a hundred million subscribers, want at most 1 MiB", used)
	}
}

func TestAssign(t *testing.T) {
	now := time.Unix(1, 0)
	for _, c := range []struct {
		kind, state, server string
		written             bool
	}{
		{ims.RequestReg, ims.StateRegistered, "sip:sprout", true},
		{ims.RequestCall, ims.StateRegistered, "sip:sprout", false},
		{ims.RequestDeregTimeout, ims.StateNotRegistered, "", true},
		{ims.RequestReg, ims.StateRegistered, "sip:sprout", true},
		{ims.RequestDeregUser, ims.StateNotRegistered, "", true},
	} {
		row := registration{State: ims.StateRegistered, Server: "sip:sprout"}
		if written := assign(&row, ims.RegRequest{Type: c.kind, Server: "sip:sprout"}, now); written != c.written || row.State != c.state || row.Server != c.server {
			t.Errorf("%s: got %+v, written %t", c.kind, row, written)
		}
	}
}

// TestRowsAreSmall checks what a subscriber costs that has registered once: the row
// stays in memory.
func TestRowsAreSmall(t *testing.T) {
	value, _ := provision(1_000_000)("impu/sip:sub000003@ims.test")
	var row registration
	if err := json.Unmarshal(value, &row); err != nil {
		t.Fatal(err)
	}
	assign(&row, ims.RegRequest{Type: ims.RequestReg, Server: "sip:127.0.0.1:5054;lr"}, time.Now())
	if value, err := json.Marshal(row); err != nil || len(value) > 200 {
		t.Errorf("the row has %d bytes, want at most 200: %s, %v", len(value), value, err)
	}
}

func TestDocument(t *testing.T) {
	value, _ := provision(10)("impu/sip:sub000003@ims.test")
	var row registration
	if err := json.Unmarshal(value, &row); err != nil {
		t.Fatal(err)
	}
	body, err := document(row)
	if err != nil {
		t.Fatal(err)
	}
	var data ims.RegData
	if err := xml.Unmarshal(body, &data); err != nil {
		t.Fatal(err)
	}
	profile := data.Subscription.Profile
	if data.State != ims.StateNotRegistered || data.Subscription.PrivateID != "sub000003@ims.test" || len(profile.Identities) != 2 ||
		profile.Identities[0].URI != "sip:sub000003@ims.test" || len(profile.Criteria) != 2 || data.Charging.CCF[0] != "ralf.ims.test" {
		t.Errorf("%s", body)
	}
}

func FuzzRegRequest(f *testing.F) {
	f.Add([]byte(`{"reqtype":"reg","server_name":"sip:127.0.0.1:5060"}`))
	f.Add([]byte(`{"reqtype":"call"}`))
	f.Add([]byte(`{"reqtype":1}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		request, err := parseRegRequest(body)
		if err != nil {
			return
		}
		row := registration{State: ims.StateNotRegistered}
		if written := assign(&row, request, time.Unix(1, 0)); written == (request.Type == ims.RequestCall) {
			t.Errorf("%q: got written %t", body, written)
		}
	})
}

package homestead

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"strings"
	"time"

	"vitrine/reference/ims"
)

// Rows of the subscriber database. Keys are "impi/IDENTITY" for a private
// identity and "impu/IDENTITY" for a public one.
const (
	privateRow = "impi/"
	publicRow  = "impu/"
)

// A credential is a private identity's row.
type credential struct {
	HA1    string   `json:"ha1"`
	Realm  string   `json:"realm"`
	QoP    string   `json:"qop"`
	Public []string `json:"public_ids"`
}

// A registration is a public identity's row. The profile is not part of it: it never
// changes, and it is larger than the rest of the row.
type registration struct {
	State   string    `json:"state"`
	Server  string    `json:"server,omitempty"`
	Private string    `json:"private_id"`
	Changed time.Time `json:"changed,omitzero"`
}

// provision returns a function that computes the row of a subscriber before any
// write. Nothing is stored for subscribers that never change.
func provision(subscribers int) func(key string) ([]byte, bool) {
	known := func(identity string) (string, bool) {
		user := ims.UserOf(identity)
		n, ok := ims.Number(user)
		return user, ok && n < subscribers
	}
	return func(key string) ([]byte, bool) {
		var row any
		if identity, ok := strings.CutPrefix(key, privateRow); ok {
			user, ok := known(identity)
			if !ok {
				return nil, false
			}
			row = credential{HA1: ims.HA1(identity), Realm: ims.Domain, QoP: "auth", Public: []string{ims.PublicID(user)}}
		} else if identity, ok := strings.CutPrefix(key, publicRow); ok {
			user, ok := known(identity)
			if !ok || !strings.HasPrefix(identity, "sip:") {
				return nil, false
			}
			row = registration{State: ims.StateNotRegistered, Private: user + "@" + ims.Domain}
		}
		if row == nil {
			return nil, false
		}
		data, err := json.Marshal(row)
		return data, err == nil
	}
}

// profile returns the IMSSubscription document of a private identity, as the HSS
// sends it. It is computed for each read, because stored ones would fill the memory of
// a small flavor.
func profile(private string) ([]byte, error) { return xml.Marshal(subscription(ims.UserOf(private))) }

// subscription returns the profile of a subscriber: its own identity, an alias
// that registers with it, and the telephony server for its sessions.
func subscription(user string) ims.Subscription {
	originating, terminating := 0, 1
	invite := func(priority int, sessionCase *int) ims.Criterion {
		return ims.Criterion{
			Priority: priority,
			Trigger: ims.Trigger{CNF: true, Spots: []ims.SPT{
				{Group: 0, Method: "INVITE"},
				{Group: 1, SessionCase: sessionCase},
			}},
			Server: ims.ApplicationServer{Name: ims.TelephonyServer},
		}
	}
	return ims.Subscription{
		PrivateID: user + "@" + ims.Domain,
		Profile: ims.Profile{
			Identities: []ims.Identity{
				{URI: ims.PublicID(user)},
				{URI: fmt.Sprintf("tel:+1555%s", strings.TrimPrefix(user, "sub"))},
			},
			Criteria: []ims.Criterion{invite(1, &originating), invite(2, &terminating)},
		},
	}
}

// document returns the answer to a GET or PUT of reg-data.
func document(r registration) ([]byte, error) {
	data := ims.RegData{State: r.State, Server: r.Server, Charging: ims.Charging{CCF: []string{"ralf." + ims.Domain}}}
	provisioned, err := profile(r.Private)
	if err == nil {
		err = xml.Unmarshal(provisioned, &data.Subscription)
	}
	if err != nil {
		return nil, fmt.Errorf("profile of %s: %w", r.Private, err)
	}
	return xml.Marshal(data)
}

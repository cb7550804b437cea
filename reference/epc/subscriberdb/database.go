package subscriberdb

import (
	"encoding/hex"
	"strings"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"

	"vitrine/reference/epc/diameter"
	"vitrine/reference/epc/subscriber"
	"vitrine/wire/mongo"
)

// A database executes commands on the collection of subscribers. It has a state for
// each known subscriber that was queried, so the number of states is at most the
// number of subscribers.
type database struct {
	subscribers *subscriber.Set

	mu     sync.Mutex
	states map[string]*state // by IMSI
}

// A state is the subscriber data that an HSS changes.
type state struct {
	sqn  int64
	rand string // of the last vector, in hexadecimal
}

const (
	// firstSQN is the sequence number of the first vector. It must not be 0, because
	// a USIM refuses a number that it has already had.
	firstSQN = 32
	// noRAND tells the HSS to choose a random number.
	noRAND = "00000000000000000000000000000000"
)

// MongoDB's error codes.
const (
	badValue        = 2
	commandNotFound = 59
)

// The limits in the greeting.
const (
	maxDocument = 16 << 10
	maxBatch    = 100
	wireVersion = 13 // MongoDB 5.0
)

// execute runs a command. It returns the reply, and the command's name or "other" for
// an unknown command.
func (d *database) execute(r *mongo.Request) (reply bson.D, name string) {
	elements, err := r.Command.Elements()
	if err != nil || len(elements) == 0 {
		return failed(badValue, "no command"), "other"
	}
	switch name = strings.ToLower(elements[0].Key()); name {
	case "hello", "ismaster":
		return bson.D{
			{Key: "ismaster", Value: true}, {Key: "isWritablePrimary", Value: true}, {Key: "maxBsonObjectSize", Value: int32(maxDocument)},
			{Key: "maxMessageSizeBytes", Value: int32(mongo.MaxMessage)}, {Key: "maxWriteBatchSize", Value: int32(maxBatch)},
			{Key: "minWireVersion", Value: int32(0)}, {Key: "maxWireVersion", Value: int32(wireVersion)}, {Key: "readOnly", Value: false}, ok(),
		}, name
	case "ping", "serverstatus", "endsessions":
		return bson.D{ok()}, name
	case "find":
		return d.find(r), name
	case "update":
		return d.update(r), name
	}
	return failed(commandNotFound, "no such command"), "other"
}

func ok() bson.E { return bson.E{Key: "ok", Value: 1.0} }

func failed(code int32, text string) bson.D {
	return bson.D{{Key: "ok", Value: 0.0}, {Key: "code", Value: code}, {Key: "errmsg", Value: text}}
}

// find finds one subscriber by IMSI. A filter by access point name also selects its
// configuration, as the PCRF's projection does.
func (d *database) find(r *mongo.Request) bson.D {
	imsi, found := text(r.Command, "filter", "imsi")
	if !found {
		return failed(badValue, "want a filter by imsi")
	}
	batch := bson.A{}
	if secret, known := d.subscribers.Secret(imsi); known {
		subscription := d.subscribers.Subscription(imsi)
		apn, only := text(r.Command, "filter", "pdn.apn")
		if pdn := configurations(&subscription, apn, only); len(pdn) > 0 {
			d.mu.Lock()
			s := d.state(imsi)
			security := bson.D{
				{Key: "k", Value: hex.EncodeToString(secret.K[:])}, {Key: "opc", Value: hex.EncodeToString(secret.OPc[:])},
				{Key: "amf", Value: "8000"}, {Key: "sqn", Value: s.sqn}, {Key: "rand", Value: s.rand},
			}
			d.mu.Unlock()
			batch = append(batch, append(bson.D{
				{Key: "imsi", Value: imsi}, {Key: "security", Value: security}, {Key: "ambr", Value: rates(subscription.AMBR)}, {Key: "pdn", Value: pdn},
			}, service()...))
		}
	}
	collection, _ := text(r.Command, "find")
	return bson.D{{Key: "cursor", Value: bson.D{
		{Key: "firstBatch", Value: batch}, {Key: "id", Value: int64(0)}, {Key: "ns", Value: "nextepc." + collection},
	}}, ok()}
}

// service returns the data that are the same for all subscribers, as NextEPC's web
// page stores them: packet service only, and no hand-over to other networks (TS
// 29.272 clauses 7.3.21, 7.3.29, 7.3.31; the timer is in minutes).
func service() bson.D {
	return bson.D{
		{Key: "subscribed_rau_tau_timer", Value: int32(12)}, {Key: "network_access_mode", Value: int32(2)},
		{Key: "subscriber_status", Value: int32(0)}, {Key: "access_restriction_data", Value: int32(32)},
	}
}

// configurations returns the configurations of all access points, or with only, of
// apn.
func configurations(s *diameter.Subscription, apn string, only bool) (all bson.A) {
	for _, a := range s.APNs {
		if only && a.Name != apn {
			continue
		}
		all = append(all, bson.D{
			{Key: "apn", Value: a.Name}, {Key: "type", Value: int32(0)}, // IPv4 (TS 29.272 clause 7.3.62)
			{Key: "ambr", Value: rates(a.AMBR)}, {Key: "qos", Value: bson.D{{Key: "qci", Value: int32(a.QoS.QCI)}, {Key: "arp", Value: bson.D{
				{Key: "priority_level", Value: int32(a.QoS.Priority)},
				{Key: "pre_emption_capability", Value: disabled(a.QoS.MayPreempt)}, {Key: "pre_emption_vulnerability", Value: disabled(a.QoS.Preemptable)},
			}}}},
		})
	}
	return all
}

// disabled returns the values of TS 29.212 clauses 5.3.46 and 5.3.47: 0 is enabled.
func disabled(enabled bool) int32 {
	if enabled {
		return 0
	}
	return 1
}

// rates returns bit rates in the database's unit of 1024 bit/s.
func rates(r diameter.Rates) bson.D {
	return bson.D{{Key: "uplink", Value: int64(r.Up >> 10)}, {Key: "downlink", Value: int64(r.Down >> 10)}}
}

// state returns the state of a known subscriber. The caller holds mu.
func (d *database) state(imsi string) *state {
	s := d.states[imsi]
	if s == nil {
		s = &state{sqn: firstSQN, rand: noRAND}
		d.states[imsi] = s
	}
	return s
}

// update changes subscribers' states by the command's update documents.
func (d *database) update(r *mongo.Request) bson.D {
	n := int32(0)
	one := func(u bson.Raw) {
		if d.change(u) {
			n++
		}
	}
	if values, found := r.Command.Lookup("updates").ArrayOK(); found {
		of, err := values.Values()
		if err != nil {
			return failed(badValue, "updates is malformed")
		}
		for _, v := range of {
			if u, isDocument := v.DocumentOK(); isDocument {
				one(u)
			}
		}
	}
	if r.Name == "updates" {
		for u := r.Next(); u != nil; u = r.Next() {
			one(u)
		}
	}
	return bson.D{{Key: "n", Value: n}, {Key: "nModified", Value: n}, ok()}
}

// change executes one update: $set, $inc and $bit on the fields below "security". It
// reports whether the subscriber exists.
func (d *database) change(update bson.Raw) bool {
	imsi, _ := text(update, "q", "imsi")
	if _, known := d.subscribers.Secret(imsi); !known {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.state(imsi)
	if rand, found := text(update, "u", "$set", "security.rand"); found && len(rand) == len(noRAND) {
		s.rand = strings.Clone(rand)
	}
	if v, found := number(update, "u", "$set", "security.sqn"); found {
		s.sqn = v
	}
	if v, found := number(update, "u", "$inc", "security.sqn"); found {
		s.sqn += v
	}
	if v, found := number(update, "u", "$bit", "security.sqn", "and"); found {
		s.sqn &= v
	}
	return true
}

// text returns a string of a document.
func text(d bson.Raw, path ...string) (string, bool) {
	v, found := lookup(d, path)
	if !found {
		return "", false
	}
	return v.StringValueOK()
}

// number returns a 64-bit integer of a document.
func number(d bson.Raw, path ...string) (int64, bool) {
	v, found := lookup(d, path)
	if !found {
		return 0, false
	}
	return v.Int64OK()
}

// lookup returns a value of a document. It looks for one name at a time, because LookupErr panics
// if a document inside is invalid on the way along a longer path.
func lookup(d bson.Raw, path []string) (v bson.RawValue, found bool) {
	for found = true; found && len(path) > 1; path = path[1:] {
		d, found = d.Lookup(path[0]).DocumentOK()
	}
	if !found {
		return v, false
	}
	v, err := d.LookupErr(path[0])
	return v, err == nil
}

package message

import (
	"encoding/json"
	"strconv"
	"time"
)

// An Instant is a time in ns since 1970. In JSON it is a text in the format of RFC 3339, because many
// readers of JSON round integers above 2^53.
type Instant int64

// MarshalJSON writes the time in UTC.
func (t Instant) MarshalJSON() ([]byte, error) { return time.Unix(0, int64(t)).UTC().MarshalJSON() }

// UnmarshalJSON reads a time. It also reads a number of ns since 1970, which affinity.json of version 1
// has.
func (t *Instant) UnmarshalJSON(text []byte) error {
	if n, err := strconv.ParseInt(string(text), 10, 64); err == nil {
		*t = Instant(n)
		return nil
	}
	var at time.Time
	if err := at.UnmarshalJSON(text); err != nil {
		return err
	}
	*t = Instant(at.UnixNano())
	return nil
}

// record is a message as JSON.
type record struct {
	ID          uint64       `json:"id"`
	Time        Instant      `json:"time"`
	Arrived     Instant      `json:"arrived,omitempty"`
	From        string       `json:"from"`
	To          string       `json:"to"`
	Src         string       `json:"src"`
	Dst         string       `json:"dst"`
	Protocol    string       `json:"protocol"`
	Kind        string       `json:"kind"`
	Name        string       `json:"name"`
	Failed      bool         `json:"failed,omitempty"`
	Cause       string       `json:"cause,omitempty"`
	Bytes       int          `json:"bytes"`
	Answers     uint64       `json:"answers,omitempty"`
	Identifiers []recordedID `json:"identifiers,omitempty"`
	Access      []recorded   `json:"access,omitempty"`
}

type recordedID struct {
	Kind    string `json:"kind"`
	Text    string `json:"text"`
	Lasting bool   `json:"lasting,omitempty"`
}

type recorded struct {
	Store    string  `json:"store"`
	Key      string  `json:"key"`
	Write    bool    `json:"write"`
	Lifetime float64 `json:"lifetime_seconds,omitempty"`
	Bytes    int     `json:"bytes,omitempty"`
}

// MarshalJSON returns the message as a JSON object.
func (m *Message) MarshalJSON() ([]byte, error) {
	r := record{ID: m.ID, Time: Instant(m.Time), Arrived: Instant(m.Arrived), From: m.From, To: m.To, Src: m.Src.String(), Dst: m.Dst.String(),
		Protocol: m.Protocol.String(), Kind: m.Kind.String(), Name: m.Name, Failed: m.Failed, Cause: m.Cause, Bytes: m.Bytes, Answers: m.Answers}
	for _, id := range m.Identifiers {
		r.Identifiers = append(r.Identifiers, recordedID{id.Kind.String(), string(id.Text), id.Lasting})
	}
	for _, a := range m.Access {
		r.Access = append(r.Access, recorded{a.Store, string(a.Key.Text), a.Write, a.Lifetime.Seconds(), a.Bytes})
	}
	return json.Marshal(r)
}

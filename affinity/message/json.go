package message

import "encoding/json"

// record is a message as JSON.
type record struct {
	ID          uint64       `json:"id"`
	Time        int64        `json:"time"`              // ns since 1970
	Arrived     int64        `json:"arrived,omitempty"` // ns since 1970
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
	r := record{ID: m.ID, Time: m.Time, Arrived: m.Arrived, From: m.From, To: m.To, Src: m.Src.String(), Dst: m.Dst.String(),
		Protocol: m.Protocol.String(), Kind: m.Kind.String(), Name: m.Name, Failed: m.Failed, Cause: m.Cause, Bytes: m.Bytes, Answers: m.Answers}
	for _, id := range m.Identifiers {
		r.Identifiers = append(r.Identifiers, recordedID{id.Kind.String(), string(id.Text), id.Lasting})
	}
	for _, a := range m.Access {
		r.Access = append(r.Access, recorded{a.Store, string(a.Key.Text), a.Write, a.Lifetime.Seconds(), a.Bytes})
	}
	return json.Marshal(r)
}

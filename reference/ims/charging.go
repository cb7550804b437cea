package ims

import (
	"encoding/json"
	"fmt"
	"time"
)

// Accounting record types of RFC 6733 section 9.8.1.
const (
	EventRecord = 1
	StartRecord = 2
	StopRecord  = 4
)

// A ChargingRecord is a record from Sprout to Ralf, similar to an
// Accounting-Request of TS 32.299: the body of a POST to /call-id/CALL-ID.
type ChargingRecord struct {
	Type    int       `json:"accounting_record_type"`
	Method  string    `json:"sip_method"`
	Calling string    `json:"calling_party"`
	Called  string    `json:"called_party"`
	ICID    string    `json:"icid,omitempty"` // charging identifier set by Bono
	Node    string    `json:"node"`
	Time    time.Time `json:"time"`
	Cause   int       `json:"cause_code"` // SIP status
}

// ParseChargingRecord parses a record.
func ParseChargingRecord(body []byte) (ChargingRecord, error) {
	var r ChargingRecord
	if err := json.Unmarshal(body, &r); err != nil {
		return r, fmt.Errorf("not a charging record: %w", err)
	}
	switch {
	case r.Type != EventRecord && r.Type != StartRecord && r.Type != StopRecord:
		return r, fmt.Errorf("not a charging record: accounting_record_type %d", r.Type)
	case r.Method == "" || r.Time.IsZero():
		return r, fmt.Errorf("not a charging record: sip_method or time is missing")
	}
	return r, nil
}

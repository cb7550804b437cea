package diameter

// A Resync asks an HSS to adopt the USIM's sequence number (TS 29.272 clause
// 7.3.15). It has the failed challenge and the AUTS that answered it.
type Resync struct {
	RAND [16]byte
	AUTS [14]byte
}

// A Subscription is the subscription data of a subscriber (TS 29.272 clause
// 7.3.2). Rates are in bit/s.
type Subscription struct {
	MSISDN  string
	AMBR    Rates // of the UE
	Default uint32
	APNs    []APN
}

// An APN is an APN configuration (TS 29.272 clause 7.3.35).
type APN struct {
	Context uint32 // identifier; Subscription.Default names one
	Name    string
	PDN     uint8 // PDN type, as gtpc.PDNv4 and so on
	QoS     QoS
	AMBR    Rates
}

// Rates are an aggregate maximum bit rate, in bit/s (TS 29.272 clause 7.3.41).
type Rates struct {
	Up, Down uint32
}

// A QoS is the quality of service of a default bearer (TS 29.272 clause 7.3.37,
// TS 29.212 clause 5.3.48).
type QoS struct {
	QCI                     uint8
	Priority                uint8 // 1 (highest) to 15
	MayPreempt, Preemptable bool
}

// DefaultAPN returns the configuration of the default APN. It returns false if
// the subscription has no default.
func (s *Subscription) DefaultAPN() (*APN, bool) {
	for i := range s.APNs {
		if s.APNs[i].Context == s.Default {
			return &s.APNs[i], true
		}
	}
	return nil, false
}

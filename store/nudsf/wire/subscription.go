package wire

import (
	"net/http"
	"slices"
	"time"
)

// Operations that subscribers are notified of: RecordOperation, TS 29.598 clause 6.1.6.3.3.
const (
	Created = "CREATED"
	Updated = "UPDATED"
	Deleted = "DELETED" // by a consumer, or because the record expired
)

// A Subscription is NotificationSubscription, TS 29.598 clause 6.1.6.2.4.
type Subscription struct {
	ClientID                *ClientID  `json:"clientId"`
	CallbackReference       string     `json:"callbackReference"`                 // notified of changes
	ExpiryCallbackReference string     `json:"expiryCallbackReference,omitempty"` // notified of the subscription's end
	Expiry                  *time.Time `json:"expiry,omitempty"`                  // nil: until deleted
	ExpiryNotification      *uint32    `json:"expiryNotification,omitempty"`      // notified so many seconds before the end
	SubFilter               *SubFilter `json:"subFilter,omitempty"`               // nil: every change in the storage
	SupportedFeatures       string     `json:"supportedFeatures,omitempty"`
}

// A ClientID names the owner of a subscription: ClientId, TS 29.598 clause 6.1.6.2.7.
type ClientID struct {
	NfID    string `json:"nfId,omitempty"`
	NfSetID string `json:"nfSetId,omitempty"`
}

// A SubFilter is SubscriptionFilter, TS 29.598 clause 6.1.6.2.5.
type SubFilter struct {
	MonitoredResourceURIs []string `json:"monitoredResourceUris,omitempty"` // of records; none: all
	Operations            []string `json:"operations,omitempty"`            // none: all
}

// A Descriptor is NotificationDescription, TS 29.598 clause 6.1.6.2.9: the change.
type Descriptor struct {
	RecordRef      string `json:"recordRef"` // URI
	OperationType  string `json:"operationType"`
	SubscriptionID string `json:"subscriptionId,omitempty"`
}

// A Notification is RecordNotification, the message to a subscriber.
type Notification struct {
	Descriptor Descriptor
	Record     Record // the new record; for Deleted the old one
}

// A NotificationInfo notifies an owner of subscriptions that end.
type NotificationInfo struct {
	ExpiredSubscriptions []Subscription `json:"expiredSubscriptions"`
}

// ParseSubscription parses and checks a subscription. The error is a *Problem.
func ParseSubscription(data []byte) (Subscription, error) {
	var s Subscription
	if err := decode(data, &s); err != nil {
		return s, BadParam(CauseMessageFormat, "body", "%v", err)
	}
	return s, s.Check()
}

// Check returns an error unless the subscription is complete. The error is a *Problem.
func (s *Subscription) Check() error {
	switch {
	case s.ClientID == nil || *s.ClientID == ClientID{}:
		return BadParam(CauseIEMissing, "/clientId", "nfId or nfSetId is needed")
	case s.CallbackReference == "":
		return BadParam(CauseIEMissing, "/callbackReference", "is needed")
	case s.ExpiryNotification != nil && s.Expiry == nil:
		return BadParam(CauseOptionalIncorrect, "/expiryNotification", "without expiry")
	}
	if s.SubFilter == nil {
		return nil
	}
	for _, op := range s.SubFilter.Operations {
		if op != Created && op != Updated && op != Deleted {
			return BadParam(CauseOptionalIncorrect, "/subFilter/operations", "%q is not CREATED, UPDATED or DELETED", op)
		}
	}
	if len(s.SubFilter.MonitoredResourceURIs) > maxMonitored {
		return BadParam(CauseOptionalIncorrect, "/subFilter/monitoredResourceUris", "more than %d", maxMonitored)
	}
	return nil
}

// maxMonitored bounds the records that one subscription may name.
const maxMonitored = 128

// Wants reports whether the subscription covers this operation.
func (s *Subscription) Wants(operation string) bool {
	return s.SubFilter == nil || len(s.SubFilter.Operations) == 0 || slices.Contains(s.SubFilter.Operations, operation)
}

// Owned returns an error unless the client owns the subscription. The error is a *Problem.
func (s *Subscription) Owned(by ClientID) error {
	if s.ClientID != nil && *s.ClientID != by {
		return NewProblem(http.StatusForbidden, CauseSubscriptionExists, "the subscription is another client's")
	}
	return nil
}

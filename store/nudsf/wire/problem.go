// Package wire encodes and decodes the messages of Nudsf_DataRepository and Nudsf_Timer (3GPP TS
// 29.598): records as multipart/mixed, filters, subscriptions, timers, patches and problem details.
// Servers and clients share it.
package wire

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Media types of the two services.
const (
	TypeJSON    = "application/json"
	TypePatch   = "application/json-patch+json" // RFC 6902
	TypeProblem = "application/problem+json"    // RFC 9457
	TypeOctets  = "application/octet-stream"
)

// Causes of a Problem: TS 29.500 table 5.2.7.2-1, and the application errors of
// TS 29.598 clauses 6.1.7.3 and 6.2.7.3.
const (
	CauseRealmNotFound        = "REALM_NOT_FOUND"
	CauseStorageNotFound      = "STORAGE_NOT_FOUND"
	CauseRecordNotFound       = "RECORD_NOT_FOUND"
	CauseBlockNotFound        = "BLOCK_NOT_FOUND"
	CauseSubscriptionNotFound = "SUBSCRIPTION_NOT_FOUND"
	CauseSubscriptionExists   = "SUBSCRIPTION_EXISTS"
	CauseTimerNotFound        = "TIMER_NOT_FOUND"
	CauseExpiresNotAllowed    = "EXPIRES_VALUE_NOT_ALLOWED"
	CauseNoSuchURI            = "RESOURCE_URI_STRUCTURE_NOT_FOUND"
	CauseMessageFormat        = "INVALID_MSG_FORMAT"
	CauseIEIncorrect          = "MANDATORY_IE_INCORRECT"
	CauseIEMissing            = "MANDATORY_IE_MISSING"
	CauseOptionalIncorrect    = "OPTIONAL_IE_INCORRECT"
	CauseQueryIncorrect       = "OPTIONAL_QUERY_PARAM_INCORRECT"
	CauseQueryMissing         = "MANDATORY_QUERY_PARAM_MISSING"
	CauseQueryInvalid         = "INVALID_QUERY_PARAM"
	CauseNoResources          = "INSUFFICIENT_RESOURCES"
	CauseCongestion           = "NF_CONGESTION"
	CauseSystemFailure        = "SYSTEM_FAILURE"
)

// A Problem is ProblemDetails (TS 29.571 clause 5.2.4.1, RFC 9457). It is the body of every 4xx and
// 5xx answer without another body.
type Problem struct {
	Type          string         `json:"type,omitempty"`
	Title         string         `json:"title,omitempty"`
	Status        int            `json:"status,omitempty"` // HTTP status
	Detail        string         `json:"detail,omitempty"`
	Instance      string         `json:"instance,omitempty"`
	Cause         string         `json:"cause,omitempty"`
	InvalidParams []InvalidParam `json:"invalidParams,omitempty"`

	RetryAfter time.Duration `json:"-"` // the Retry-After header; 0: none
}

// An InvalidParam says which part of a request is wrong, and why.
type InvalidParam struct {
	Param  string `json:"param"` // JSON pointer, or name of the header or query parameter
	Reason string `json:"reason,omitempty"`
}

func (p *Problem) Error() string {
	s := strconv.Itoa(p.Status)
	if p.Title != "" {
		s += " " + p.Title
	}
	if p.Cause != "" {
		s += " (" + p.Cause + ")"
	}
	if p.Detail != "" {
		s += ": " + p.Detail
	}
	for _, i := range p.InvalidParams {
		s += fmt.Sprintf("; %s: %s", i.Param, i.Reason)
	}
	return s
}

// NewProblem returns a Problem with a status, a cause, and a sentence for the client.
func NewProblem(status int, cause, format string, args ...any) *Problem {
	return &Problem{
		Title: http.StatusText(status), Status: status, Cause: cause, Detail: fmt.Sprintf(format, args...),
	}
}

// BadParam returns a 400 problem about one part of a request.
func BadParam(cause, param, format string, args ...any) *Problem {
	reason := fmt.Sprintf(format, args...)
	p := NewProblem(http.StatusBadRequest, cause, "%s: %s", param, reason)
	p.InvalidParams = []InvalidParam{{Param: param, Reason: reason}}
	return p
}

// Write answers with the problem.
func (p *Problem) Write(w http.ResponseWriter) {
	body, err := json.Marshal(p)
	if err != nil { // cannot happen: strings and integers only
		body = []byte("{}")
	}
	h := w.Header()
	h.Set("Content-Type", TypeProblem)
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int((p.RetryAfter+time.Second-1)/time.Second)))
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(body)
}

package pfcp

import "strconv"

// A Type is the type of a message (clause 7.3).
type Type uint8

// The types of messages.
const (
	HeartbeatRequest               Type = 1
	HeartbeatResponse              Type = 2
	PFDManagementRequest           Type = 3
	PFDManagementResponse          Type = 4
	AssociationSetupRequest        Type = 5
	AssociationSetupResponse       Type = 6
	AssociationUpdateRequest       Type = 7
	AssociationUpdateResponse      Type = 8
	AssociationReleaseRequest      Type = 9
	AssociationReleaseResponse     Type = 10
	VersionNotSupportedResponse    Type = 11
	NodeReportRequest              Type = 12
	NodeReportResponse             Type = 13
	SessionSetDeletionRequest      Type = 14
	SessionSetDeletionResponse     Type = 15
	SessionSetModificationRequest  Type = 16
	SessionSetModificationResponse Type = 17

	SessionEstablishmentRequest  Type = 50
	SessionEstablishmentResponse Type = 51
	SessionModificationRequest   Type = 52
	SessionModificationResponse  Type = 53
	SessionDeletionRequest       Type = 54
	SessionDeletionResponse      Type = 55
	SessionReportRequest         Type = 56
	SessionReportResponse        Type = 57
)

// names are the names in table 7.3-1, by type.
var names = [...]string{
	HeartbeatRequest:               "Heartbeat Request",
	HeartbeatResponse:              "Heartbeat Response",
	PFDManagementRequest:           "PFD Management Request",
	PFDManagementResponse:          "PFD Management Response",
	AssociationSetupRequest:        "Association Setup Request",
	AssociationSetupResponse:       "Association Setup Response",
	AssociationUpdateRequest:       "Association Update Request",
	AssociationUpdateResponse:      "Association Update Response",
	AssociationReleaseRequest:      "Association Release Request",
	AssociationReleaseResponse:     "Association Release Response",
	VersionNotSupportedResponse:    "Version Not Supported Response",
	NodeReportRequest:              "Node Report Request",
	NodeReportResponse:             "Node Report Response",
	SessionSetDeletionRequest:      "Session Set Deletion Request",
	SessionSetDeletionResponse:     "Session Set Deletion Response",
	SessionSetModificationRequest:  "Session Set Modification Request",
	SessionSetModificationResponse: "Session Set Modification Response",
	SessionEstablishmentRequest:    "Session Establishment Request",
	SessionEstablishmentResponse:   "Session Establishment Response",
	SessionModificationRequest:     "Session Modification Request",
	SessionModificationResponse:    "Session Modification Response",
	SessionDeletionRequest:         "Session Deletion Request",
	SessionDeletionResponse:        "Session Deletion Response",
	SessionReportRequest:           "Session Report Request",
	SessionReportResponse:          "Session Report Response",
}

// String returns the name in table 7.3-1. It allocates only for types without a
// name here.
func (t Type) String() string {
	if int(t) < len(names) && names[t] != "" {
		return names[t]
	}
	return "Message " + strconv.Itoa(int(t))
}

// IsResponse reports whether messages of the type answer a request.
func (t Type) IsResponse() bool {
	switch {
	case t == VersionNotSupportedResponse:
		return true
	case t < VersionNotSupportedResponse:
		return t != 0 && t%2 == 0
	case t <= SessionSetModificationResponse, t >= SessionEstablishmentRequest && t <= SessionReportResponse:
		return t%2 == 1
	}
	return false
}

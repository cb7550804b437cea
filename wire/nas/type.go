package nas

import "strconv"

// A Type is a message type (tables 9.8.1 and 9.8.2). EMM and ESM types do not
// overlap.
type Type uint8

// The message types that this package parses and appends.
const (
	AttachRequestType          Type = 0x41
	AttachAcceptType           Type = 0x42
	AttachCompleteType         Type = 0x43
	AttachRejectType           Type = 0x44
	DetachRequestType          Type = 0x45
	DetachAcceptType           Type = 0x46
	UpdateRequestType          Type = 0x48 // Tracking Area Update Request
	UpdateAcceptType           Type = 0x49
	UpdateCompleteType         Type = 0x4a
	UpdateRejectType           Type = 0x4b
	ServiceRejectType          Type = 0x4e
	ReallocationCommandType    Type = 0x50 // GUTI Reallocation Command
	ReallocationCompleteType   Type = 0x51
	AuthenticationRequestType  Type = 0x52
	AuthenticationResponseType Type = 0x53
	AuthenticationRejectType   Type = 0x54
	IdentityRequestType        Type = 0x55
	IdentityResponseType       Type = 0x56
	AuthenticationFailureType  Type = 0x5c
	SecurityModeCommandType    Type = 0x5d
	SecurityModeCompleteType   Type = 0x5e
	SecurityModeRejectType     Type = 0x5f
	EMMStatusType              Type = 0x60
	EMMInformationType         Type = 0x61

	DefaultBearerRequestType   Type = 0xc1 // Activate Default EPS Bearer Context Request
	DefaultBearerAcceptType    Type = 0xc2
	DefaultBearerRejectType    Type = 0xc3
	DedicatedBearerRequestType Type = 0xc5 // Activate Dedicated EPS Bearer Context Request
	DedicatedBearerAcceptType  Type = 0xc6
	DedicatedBearerRejectType  Type = 0xc7
	ModifyBearerRequestType    Type = 0xc9
	ModifyBearerAcceptType     Type = 0xca
	ModifyBearerRejectType     Type = 0xcb
	DeactivateRequestType      Type = 0xcd // Deactivate EPS Bearer Context Request
	DeactivateAcceptType       Type = 0xce
	ConnectivityRequestType    Type = 0xd0 // PDN Connectivity Request
	ConnectivityRejectType     Type = 0xd1
	DisconnectRequestType      Type = 0xd2 // PDN Disconnect Request
	DisconnectRejectType       Type = 0xd3
	AllocationRequestType      Type = 0xd4 // Bearer Resource Allocation Request
	AllocationRejectType       Type = 0xd5
	ModificationRequestType    Type = 0xd6 // Bearer Resource Modification Request
	ModificationRejectType     Type = 0xd7
	ESMInformationRequestType  Type = 0xd9
	ESMInformationResponseType Type = 0xda
	ESMStatusType              Type = 0xe8
)

// String returns the message's name as in table 9.8.1 or 9.8.2, in lower case
// with hyphens.
func (t Type) String() string {
	if name := name(t); name != "" {
		return name
	}
	return "message-" + strconv.Itoa(int(t))
}

func name(t Type) string {
	switch t {
	case AttachRequestType:
		return "attach-request"
	case AttachAcceptType:
		return "attach-accept"
	case AttachCompleteType:
		return "attach-complete"
	case AttachRejectType:
		return "attach-reject"
	case DetachRequestType:
		return "detach-request"
	case DetachAcceptType:
		return "detach-accept"
	case UpdateRequestType:
		return "tracking-area-update-request"
	case UpdateAcceptType:
		return "tracking-area-update-accept"
	case UpdateCompleteType:
		return "tracking-area-update-complete"
	case UpdateRejectType:
		return "tracking-area-update-reject"
	case ServiceRejectType:
		return "service-reject"
	case ReallocationCommandType:
		return "guti-reallocation-command"
	case ReallocationCompleteType:
		return "guti-reallocation-complete"
	case AuthenticationRequestType:
		return "authentication-request"
	case AuthenticationResponseType:
		return "authentication-response"
	case AuthenticationRejectType:
		return "authentication-reject"
	case AuthenticationFailureType:
		return "authentication-failure"
	case IdentityRequestType:
		return "identity-request"
	case IdentityResponseType:
		return "identity-response"
	case SecurityModeCommandType:
		return "security-mode-command"
	case SecurityModeCompleteType:
		return "security-mode-complete"
	case SecurityModeRejectType:
		return "security-mode-reject"
	case EMMStatusType:
		return "emm-status"
	case EMMInformationType:
		return "emm-information"
	}
	return sessionName(t)
}

func sessionName(t Type) string {
	switch t {
	case DefaultBearerRequestType:
		return "activate-default-eps-bearer-context-request"
	case DefaultBearerAcceptType:
		return "activate-default-eps-bearer-context-accept"
	case DefaultBearerRejectType:
		return "activate-default-eps-bearer-context-reject"
	case DedicatedBearerRequestType:
		return "activate-dedicated-eps-bearer-context-request"
	case DedicatedBearerAcceptType:
		return "activate-dedicated-eps-bearer-context-accept"
	case DedicatedBearerRejectType:
		return "activate-dedicated-eps-bearer-context-reject"
	case ModifyBearerRequestType:
		return "modify-eps-bearer-context-request"
	case ModifyBearerAcceptType:
		return "modify-eps-bearer-context-accept"
	case ModifyBearerRejectType:
		return "modify-eps-bearer-context-reject"
	case DeactivateRequestType:
		return "deactivate-eps-bearer-context-request"
	case DeactivateAcceptType:
		return "deactivate-eps-bearer-context-accept"
	case ConnectivityRequestType:
		return "pdn-connectivity-request"
	case ConnectivityRejectType:
		return "pdn-connectivity-reject"
	case DisconnectRequestType:
		return "pdn-disconnect-request"
	case DisconnectRejectType:
		return "pdn-disconnect-reject"
	case AllocationRequestType:
		return "bearer-resource-allocation-request"
	case AllocationRejectType:
		return "bearer-resource-allocation-reject"
	case ModificationRequestType:
		return "bearer-resource-modification-request"
	case ModificationRejectType:
		return "bearer-resource-modification-reject"
	case ESMInformationRequestType:
		return "esm-information-request"
	case ESMInformationResponseType:
		return "esm-information-response"
	case ESMStatusType:
		return "esm-status"
	}
	return ""
}

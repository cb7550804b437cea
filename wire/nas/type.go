package nas

import "strconv"

// A Type is a message type (tables 9.8.1 and 9.8.2). EMM and ESM types do not
// overlap.
type Type uint8

// The message types that this package names. It parses and appends most of them.
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
	ExtendedServiceRequestType Type = 0x4c
	ControlPlaneRequestType    Type = 0x4d // Control Plane Service Request
	ServiceRejectType          Type = 0x4e
	ServiceAcceptType          Type = 0x4f
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
	DownlinkTransportType      Type = 0x62 // Downlink NAS Transport
	UplinkTransportType        Type = 0x63
	CSNotificationType         Type = 0x64 // CS Service Notification

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

// names are the names in tables 9.8.1 and 9.8.2, in lower case with hyphens.
var names = [256]string{
	AttachRequestType:          "attach-request",
	AttachAcceptType:           "attach-accept",
	AttachCompleteType:         "attach-complete",
	AttachRejectType:           "attach-reject",
	DetachRequestType:          "detach-request",
	DetachAcceptType:           "detach-accept",
	UpdateRequestType:          "tracking-area-update-request",
	UpdateAcceptType:           "tracking-area-update-accept",
	UpdateCompleteType:         "tracking-area-update-complete",
	UpdateRejectType:           "tracking-area-update-reject",
	ExtendedServiceRequestType: "extended-service-request",
	ControlPlaneRequestType:    "control-plane-service-request",
	ServiceRejectType:          "service-reject",
	ServiceAcceptType:          "service-accept",
	ReallocationCommandType:    "guti-reallocation-command",
	ReallocationCompleteType:   "guti-reallocation-complete",
	AuthenticationRequestType:  "authentication-request",
	AuthenticationResponseType: "authentication-response",
	AuthenticationRejectType:   "authentication-reject",
	AuthenticationFailureType:  "authentication-failure",
	IdentityRequestType:        "identity-request",
	IdentityResponseType:       "identity-response",
	SecurityModeCommandType:    "security-mode-command",
	SecurityModeCompleteType:   "security-mode-complete",
	SecurityModeRejectType:     "security-mode-reject",
	EMMStatusType:              "emm-status",
	EMMInformationType:         "emm-information",
	DownlinkTransportType:      "downlink-nas-transport",
	UplinkTransportType:        "uplink-nas-transport",
	CSNotificationType:         "cs-service-notification",

	DefaultBearerRequestType:   "activate-default-eps-bearer-context-request",
	DefaultBearerAcceptType:    "activate-default-eps-bearer-context-accept",
	DefaultBearerRejectType:    "activate-default-eps-bearer-context-reject",
	DedicatedBearerRequestType: "activate-dedicated-eps-bearer-context-request",
	DedicatedBearerAcceptType:  "activate-dedicated-eps-bearer-context-accept",
	DedicatedBearerRejectType:  "activate-dedicated-eps-bearer-context-reject",
	ModifyBearerRequestType:    "modify-eps-bearer-context-request",
	ModifyBearerAcceptType:     "modify-eps-bearer-context-accept",
	ModifyBearerRejectType:     "modify-eps-bearer-context-reject",
	DeactivateRequestType:      "deactivate-eps-bearer-context-request",
	DeactivateAcceptType:       "deactivate-eps-bearer-context-accept",
	ConnectivityRequestType:    "pdn-connectivity-request",
	ConnectivityRejectType:     "pdn-connectivity-reject",
	DisconnectRequestType:      "pdn-disconnect-request",
	DisconnectRejectType:       "pdn-disconnect-reject",
	AllocationRequestType:      "bearer-resource-allocation-request",
	AllocationRejectType:       "bearer-resource-allocation-reject",
	ModificationRequestType:    "bearer-resource-modification-request",
	ModificationRejectType:     "bearer-resource-modification-reject",
	ESMInformationRequestType:  "esm-information-request",
	ESMInformationResponseType: "esm-information-response",
	ESMStatusType:              "esm-status",
}

// String returns the message's name as in table 9.8.1 or 9.8.2, in lower case
// with hyphens.
func (t Type) String() string {
	if name := names[t]; name != "" {
		return name
	}
	return "message-" + strconv.Itoa(int(t))
}

package gtpc

import "strconv"

// A Type is a message type (table 6.1-1).
type Type uint8

// The message types of the EPC's interfaces.
const (
	EchoRequest         Type = 1
	EchoResponse        Type = 2
	VersionNotSupported Type = 3

	CreateSessionRequest       Type = 32
	CreateSessionResponse      Type = 33
	ModifyBearerRequest        Type = 34
	ModifyBearerResponse       Type = 35
	DeleteSessionRequest       Type = 36
	DeleteSessionResponse      Type = 37
	ChangeNotificationRequest  Type = 38
	ChangeNotificationResponse Type = 39
	RemoteUEReport             Type = 40
	RemoteUEReportAcknowledge  Type = 41

	ModifyBearerCommand    Type = 64
	ModifyBearerFailure    Type = 65
	DeleteBearerCommand    Type = 66
	DeleteBearerFailure    Type = 67
	BearerResourceCommand  Type = 68
	BearerResourceFailure  Type = 69
	DownlinkDataFailure    Type = 70
	TraceSessionActivation Type = 71
	TraceSessionEnd        Type = 72
	StopPagingIndication   Type = 73

	CreateBearerRequest         Type = 95
	CreateBearerResponse        Type = 96
	UpdateBearerRequest         Type = 97
	UpdateBearerResponse        Type = 98
	DeleteBearerRequest         Type = 99
	DeleteBearerResponse        Type = 100
	DeletePDNConnectionSet      Type = 101
	DeletePDNConnectionSetReply Type = 102
	DownlinkTriggering          Type = 103
	DownlinkTriggeringReply     Type = 104

	IdentificationRequest      Type = 128
	IdentificationResponse     Type = 129
	ContextRequest             Type = 130
	ContextResponse            Type = 131
	ContextAcknowledge         Type = 132
	ForwardRelocationRequest   Type = 133
	ForwardRelocationResponse  Type = 134
	ForwardRelocationComplete  Type = 135
	ForwardRelocationCompleted Type = 136
	ForwardAccessContext       Type = 137
	ForwardAccessContextReply  Type = 138
	RelocationCancelRequest    Type = 139
	RelocationCancelResponse   Type = 140
	ConfigurationTransfer      Type = 141

	DetachNotification            Type = 149
	DetachAcknowledge             Type = 150
	CSPagingIndication            Type = 151
	RANInformationRelay           Type = 152
	AlertMME                      Type = 153
	AlertMMEAcknowledge           Type = 154
	UEActivity                    Type = 155
	UEActivityAcknowledge         Type = 156
	ISRStatusIndication           Type = 157
	UERegistrationQuery           Type = 158
	UERegistrationQueryReply      Type = 159
	CreateForwardingTunnelRequest Type = 160
	CreateForwardingTunnelReply   Type = 161
	SuspendNotification           Type = 162
	SuspendAcknowledge            Type = 163
	ResumeNotification            Type = 164
	ResumeAcknowledge             Type = 165
	CreateIndirectTunnelRequest   Type = 166
	CreateIndirectTunnelResponse  Type = 167
	DeleteIndirectTunnelRequest   Type = 168
	DeleteIndirectTunnelResponse  Type = 169
	ReleaseAccessBearersRequest   Type = 170
	ReleaseAccessBearersResponse  Type = 171

	DownlinkData            Type = 176
	DownlinkDataAcknowledge Type = 177
	PGWRestart              Type = 179
	PGWRestartAcknowledge   Type = 180

	UpdatePDNConnectionSet      Type = 200
	UpdatePDNConnectionSetReply Type = 201
	ModifyAccessBearersRequest  Type = 211
	ModifyAccessBearersResponse Type = 212
)

// IsTriggered reports whether messages of the type answer another message:
// responses, acknowledgements and failure indications. All others begin an
// exchange or are triggered requests. A triggered request has the sequence number
// of its command (clause 7.6).
func (t Type) IsTriggered() bool {
	switch t {
	case EchoResponse, VersionNotSupported, CreateSessionResponse, ModifyBearerResponse, DeleteSessionResponse,
		ChangeNotificationResponse, RemoteUEReportAcknowledge, ModifyBearerFailure, DeleteBearerFailure,
		BearerResourceFailure, CreateBearerResponse, UpdateBearerResponse, DeleteBearerResponse,
		DeletePDNConnectionSetReply, DownlinkTriggeringReply, IdentificationResponse, ContextResponse,
		ContextAcknowledge, ForwardRelocationResponse, ForwardRelocationCompleted, ForwardAccessContextReply,
		RelocationCancelResponse, DetachAcknowledge, AlertMMEAcknowledge, UEActivityAcknowledge,
		UERegistrationQueryReply, CreateForwardingTunnelReply, SuspendAcknowledge, ResumeAcknowledge,
		CreateIndirectTunnelResponse, DeleteIndirectTunnelResponse, ReleaseAccessBearersResponse,
		DownlinkDataAcknowledge, PGWRestartAcknowledge, UpdatePDNConnectionSetReply, ModifyAccessBearersResponse:
		return true
	}
	return false
}

// IsCommand reports whether messages of the type are commands (clause 7.6).
func (t Type) IsCommand() bool {
	return t == ModifyBearerCommand || t == DeleteBearerCommand || t == BearerResourceCommand
}

// FollowsCommand reports whether a command can trigger messages of the type,
// which then have its sequence number: failure indications, and requests about
// bearers with their responses (clause 7.6).
func (t Type) FollowsCommand() bool {
	switch t {
	case ModifyBearerFailure, DeleteBearerFailure, BearerResourceFailure, CreateBearerRequest, CreateBearerResponse,
		UpdateBearerRequest, UpdateBearerResponse, DeleteBearerRequest, DeleteBearerResponse:
		return true
	}
	return false
}

// Response returns the type that answers a request. It returns false if the
// request has no answer in the same exchange.
func (t Type) Response() (Type, bool) {
	if t.IsTriggered() || t.IsCommand() || !(t + 1).IsTriggered() {
		return 0, false
	}
	return t + 1, true
}

// Types returns the types that rules may use, by name. Names are as in table
// 6.1-1, in lower case, with hyphens, without Request.
func Types() map[string]Type {
	return map[string]Type{
		"create-session": CreateSessionRequest, "modify-bearer": ModifyBearerRequest,
		"delete-session": DeleteSessionRequest, "change-notification": ChangeNotificationRequest,
		"remote-ue-report": RemoteUEReport, "modify-bearer-command": ModifyBearerCommand,
		"delete-bearer-command": DeleteBearerCommand, "bearer-resource-command": BearerResourceCommand,
		"downlink-data-notification-failure": DownlinkDataFailure, "trace-session-activation": TraceSessionActivation,
		"trace-session-deactivation": TraceSessionEnd, "stop-paging-indication": StopPagingIndication,
		"create-bearer": CreateBearerRequest, "update-bearer": UpdateBearerRequest, "delete-bearer": DeleteBearerRequest,
		"delete-pdn-connection-set": DeletePDNConnectionSet, "pgw-downlink-triggering": DownlinkTriggering,
		"identification": IdentificationRequest, "context": ContextRequest,
		"forward-relocation": ForwardRelocationRequest, "forward-relocation-complete": ForwardRelocationComplete,
		"forward-access-context": ForwardAccessContext, "relocation-cancel": RelocationCancelRequest,
		"configuration-transfer-tunnel": ConfigurationTransfer, "detach": DetachNotification,
		"cs-paging-indication": CSPagingIndication, "ran-information-relay": RANInformationRelay,
		"alert-mme": AlertMME, "ue-activity": UEActivity, "isr-status-indication": ISRStatusIndication,
		"ue-registration-query": UERegistrationQuery, "create-forwarding-tunnel": CreateForwardingTunnelRequest,
		"suspend": SuspendNotification, "resume": ResumeNotification,
		"create-indirect-data-forwarding-tunnel": CreateIndirectTunnelRequest,
		"delete-indirect-data-forwarding-tunnel": DeleteIndirectTunnelRequest,
		"release-access-bearers":                 ReleaseAccessBearersRequest,
		"downlink-data-notification":             DownlinkData, "pgw-restart": PGWRestart,
		"update-pdn-connection-set": UpdatePDNConnectionSet, "modify-access-bearers": ModifyAccessBearersRequest,
	}
}

// String returns the name that rules use, with "-response" appended for a
// response.
func (t Type) String() string {
	switch t {
	case EchoRequest:
		return "echo"
	case EchoResponse:
		return "echo-response"
	case VersionNotSupported:
		return "version-not-supported"
	}
	for name, of := range Types() {
		if of == t {
			return name
		}
		if r, ok := of.Response(); ok && r == t {
			return name + "-response"
		}
	}
	return "message-" + strconv.Itoa(int(t))
}

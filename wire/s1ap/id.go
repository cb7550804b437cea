package s1ap

import "strconv"

// A Procedure is a procedure code (clause 9.3.6).
type Procedure uint8

// The procedures that an EPC and its eNodeBs use here.
const (
	HandoverPreparation        Procedure = 0 // Handover Required, Handover Command
	HandoverResourceAllocation Procedure = 1 // Handover Request and its acknowledgement
	HandoverNotification       Procedure = 2
	PathSwitchRequest          Procedure = 3
	HandoverCancel             Procedure = 4
	ERABSetup                  Procedure = 5
	ERABModify                 Procedure = 6
	ERABRelease                Procedure = 7
	ERABReleaseIndication      Procedure = 8
	InitialContextSetup        Procedure = 9
	Paging                     Procedure = 10
	DownlinkNASTransport       Procedure = 11
	InitialUEMessage           Procedure = 12
	UplinkNASTransport         Procedure = 13
	Reset                      Procedure = 14
	ErrorIndication            Procedure = 15
	NASNonDelivery             Procedure = 16
	S1Setup                    Procedure = 17
	UEContextReleaseRequest    Procedure = 18
	UECapabilityIndication     Procedure = 22
	UEContextRelease           Procedure = 23 // command and complete
	ENBStatusTransfer          Procedure = 24
	MMEStatusTransfer          Procedure = 25
	ENBConfigurationUpdate     Procedure = 29
	MMEConfigurationUpdate     Procedure = 30
	OverloadStart              Procedure = 34
	OverloadStop               Procedure = 35
)

// procedures are the names of the procedures as in clause 8, in lower case with hyphens.
var procedures = [256]string{
	HandoverPreparation:        "handover-preparation",
	HandoverResourceAllocation: "handover-resource-allocation",
	HandoverNotification:       "handover-notification",
	PathSwitchRequest:          "path-switch-request",
	HandoverCancel:             "handover-cancel",
	ERABSetup:                  "e-rab-setup",
	ERABModify:                 "e-rab-modify",
	ERABRelease:                "e-rab-release",
	ERABReleaseIndication:      "e-rab-release-indication",
	InitialContextSetup:        "initial-context-setup",
	Paging:                     "paging",
	DownlinkNASTransport:       "downlink-nas-transport",
	InitialUEMessage:           "initial-ue-message",
	UplinkNASTransport:         "uplink-nas-transport",
	Reset:                      "reset",
	ErrorIndication:            "error-indication",
	NASNonDelivery:             "nas-non-delivery-indication",
	S1Setup:                    "s1-setup",
	UEContextReleaseRequest:    "ue-context-release-request",
	UECapabilityIndication:     "ue-capability-info-indication",
	UEContextRelease:           "ue-context-release",
	ENBStatusTransfer:          "enb-status-transfer",
	MMEStatusTransfer:          "mme-status-transfer",
	ENBConfigurationUpdate:     "enb-configuration-update",
	MMEConfigurationUpdate:     "mme-configuration-update",
	OverloadStart:              "overload-start",
	OverloadStop:               "overload-stop",
}

// String returns the procedure's name.
func (p Procedure) String() string {
	if name := procedures[p]; name != "" {
		return name
	}
	return "procedure-" + strconv.Itoa(int(p))
}

// An ID is the identifier of an information element (clause 9.3.6).
type ID uint16

// The named elements. The iterator yields all others too, by number.
const (
	MMEUEID                ID = 0
	HandoverType           ID = 1
	CauseID                ID = 2
	TargetID               ID = 4
	ENBUEID                ID = 8
	SubjectToForwarding    ID = 12 // E-RABs of a Handover Command
	ToReleaseHO            ID = 13
	DataForwardingItem     ID = 14
	ReleaseItemBearerRel   ID = 15
	ToBeSetupBearer        ID = 16
	ToBeSetupItemBearer    ID = 17
	AdmittedList           ID = 18
	FailedToSetupHO        ID = 19
	AdmittedItem           ID = 20
	FailedToSetupItemHO    ID = 21
	ToBeSwitchedDL         ID = 22
	ToBeSwitchedItemDL     ID = 23
	ToBeSetupContext       ID = 24
	NASPDU                 ID = 26
	ToBeSetupItemHO        ID = 27
	SetupListBearer        ID = 28
	FailedToSetupBearer    ID = 29
	ToBeReleased           ID = 33
	FailedToRelease        ID = 34
	ERABItem               ID = 35
	SetupItemBearer        ID = 39
	SecurityContext        ID = 40
	UEPagingID             ID = 43
	PagingDRX              ID = 44
	TAIList                ID = 46
	TAIItem                ID = 47
	FailedToSetupContext   ID = 48
	SetupItemContext       ID = 50
	SetupListContext       ID = 51
	ToBeSetupItemContext   ID = 52
	ToBeSetupHO            ID = 53
	CriticalityDiagnostics ID = 58
	GlobalENBID            ID = 59
	ENBName                ID = 60
	MMEName                ID = 61
	SupportedTAs           ID = 64
	TimeToWait             ID = 65
	AggregateMaxBitRate    ID = 66
	TAI                    ID = 67
	ReleasedBearer         ID = 69 // E-RABs of an E-RAB Release Response
	SecurityKey            ID = 73
	RadioCapability        ID = 74
	GUMMEI                 ID = 75
	IdentityIndex          ID = 80
	RelativeCapacity       ID = 87
	SourceMMEUEID          ID = 88
	ToBeSwitchedUL         ID = 95
	ToBeSwitchedItemUL     ID = 94
	ConnectionItem         ID = 91 // UE-associated logical S1-connection item
	ResetType              ID = 92
	ResetConnections       ID = 93 // of a Reset Acknowledge
	STMSI                  ID = 96
	UEIDs                  ID = 99
	ECGI                   ID = 100
	SourceToTarget         ID = 104
	ServedGUMMEIs          ID = 105
	SecurityCapabilities   ID = 107
	CNDomain               ID = 109
	ReleasedIndication     ID = 110 // E-RABs of an E-RAB Release Indication
	TargetToSource         ID = 123
	EstablishmentCause     ID = 134
	DefaultPagingDRX       ID = 137
)

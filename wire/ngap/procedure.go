package ngap

import "strconv"

// A Procedure is the code of an elementary procedure (clause 9.4.7).
type Procedure uint8

// The procedures that have NAS messages or the identities of a UE at its attach,
// release and handover.
const (
	DownlinkNASTransport       Procedure = 4
	ErrorIndication            Procedure = 9
	HandoverNotification       Procedure = 11
	HandoverPreparation        Procedure = 12
	HandoverResourceAllocation Procedure = 13
	InitialContextSetup        Procedure = 14
	InitialUEMessage           Procedure = 15
	NGReset                    Procedure = 20
	NGSetup                    Procedure = 21
	Paging                     Procedure = 24
	PathSwitchRequest          Procedure = 25
	PDUSessionResourceModify   Procedure = 26
	PDUSessionResourceRelease  Procedure = 28
	PDUSessionResourceSetup    Procedure = 29
	UEContextRelease           Procedure = 41
	UEContextReleaseRequest    Procedure = 42
	UplinkNASTransport         Procedure = 46
)

// procedures are the names in clause 9.4.7, by code.
var procedures = [...]string{
	0:  "AMFConfigurationUpdate",
	1:  "AMFStatusIndication",
	2:  "CellTrafficTrace",
	3:  "DeactivateTrace",
	4:  "DownlinkNASTransport",
	5:  "DownlinkNonUEAssociatedNRPPaTransport",
	6:  "DownlinkRANConfigurationTransfer",
	7:  "DownlinkRANStatusTransfer",
	8:  "DownlinkUEAssociatedNRPPaTransport",
	9:  "ErrorIndication",
	10: "HandoverCancel",
	11: "HandoverNotification",
	12: "HandoverPreparation",
	13: "HandoverResourceAllocation",
	14: "InitialContextSetup",
	15: "InitialUEMessage",
	16: "LocationReportingControl",
	17: "LocationReportingFailureIndication",
	18: "LocationReport",
	19: "NASNonDeliveryIndication",
	20: "NGReset",
	21: "NGSetup",
	22: "OverloadStart",
	23: "OverloadStop",
	24: "Paging",
	25: "PathSwitchRequest",
	26: "PDUSessionResourceModify",
	27: "PDUSessionResourceModifyIndication",
	28: "PDUSessionResourceRelease",
	29: "PDUSessionResourceSetup",
	30: "PDUSessionResourceNotify",
	31: "PrivateMessage",
	32: "PWSCancel",
	33: "PWSFailureIndication",
	34: "PWSRestartIndication",
	35: "RANConfigurationUpdate",
	36: "RerouteNASRequest",
	37: "RRCInactiveTransitionReport",
	38: "TraceFailureIndication",
	39: "TraceStart",
	40: "UEContextModification",
	41: "UEContextRelease",
	42: "UEContextReleaseRequest",
	43: "UERadioCapabilityCheck",
	44: "UERadioCapabilityInfoIndication",
	45: "UETNLABindingRelease",
	46: "UplinkNASTransport",
	47: "UplinkNonUEAssociatedNRPPaTransport",
	48: "UplinkRANConfigurationTransfer",
	49: "UplinkRANStatusTransfer",
	50: "UplinkUEAssociatedNRPPaTransport",
	51: "WriteReplaceWarning",
	52: "SecondaryRATDataUsageReport",
	53: "UplinkRIMInformationTransfer",
	54: "DownlinkRIMInformationTransfer",
	55: "RetrieveUEInformation",
	56: "UEInformationTransfer",
	57: "RANCPRelocationIndication",
	58: "UEContextResume",
	59: "UEContextSuspend",
	60: "UERadioCapabilityIDMapping",
	61: "HandoverSuccess",
	62: "UplinkRANEarlyStatusTransfer",
	63: "DownlinkRANEarlyStatusTransfer",
	64: "AMFCPRelocationIndication",
	65: "ConnectionEstablishmentIndication",
	66: "BroadcastSessionModification",
	67: "BroadcastSessionRelease",
	68: "BroadcastSessionSetup",
	69: "DistributionSetup",
	70: "DistributionRelease",
	71: "MulticastSessionActivation",
	72: "MulticastSessionDeactivation",
	73: "MulticastSessionUpdate",
	74: "MulticastGroupPaging",
	75: "BroadcastSessionReleaseRequired",
}

// String returns the name in clause 9.4.7. It allocates only for codes without
// a name here.
func (p Procedure) String() string {
	if int(p) < len(procedures) && procedures[p] != "" {
		return procedures[p]
	}
	return "Procedure " + strconv.Itoa(int(p))
}

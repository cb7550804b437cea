package nas

// A Cause is an EMM cause (clause 9.9.3.9). Zero means that a message has none.
type Cause uint8

// The EMM causes used here.
const (
	CauseIMSIUnknown        Cause = 2 // in HSS
	CauseIllegalUE          Cause = 3
	CauseIMEINotAccepted    Cause = 5
	CauseNotAllowed         Cause = 7  // EPS services
	CauseServicesNotAllowed Cause = 8  // EPS services and non-EPS services
	CauseIdentityUnderived  Cause = 9  // the network cannot derive the UE's identity
	CauseImplicitlyDetached Cause = 10 //
	CausePLMNNotAllowed     Cause = 11
	CauseAreaNotAllowed     Cause = 12
	CauseNetworkFailure     Cause = 17
	CauseCSUnavailable      Cause = 18 // CS domain not available
	CauseESMFailure         Cause = 19
	CauseMAC                Cause = 20 // MAC failure
	CauseSynch              Cause = 21 // synch failure: an AUTS follows
	CauseCongestion         Cause = 22
	CauseCapabilityMismatch Cause = 23 // UE security capabilities mismatch
	CauseSecurityModeReject Cause = 24 // unspecified
	CauseNoBearer           Cause = 40 // no EPS bearer context activated
	CauseSemantic           Cause = 95 // semantically incorrect message
	CauseMandatory          Cause = 96 // invalid mandatory information
	CauseTypeUnknown        Cause = 97
	CauseIncompatible       Cause = 98  // message type not compatible with the protocol state
	CauseProtocolError      Cause = 111 // unspecified
)

// appendTV appends the cause as an optional element, unless it is zero.
func (c Cause) appendTV(b []byte) []byte {
	if c == 0 {
		return b
	}
	return append(b, 0x53, byte(c))
}

// An ESMCause is an ESM cause (clause 9.9.4.4). Zero means that a message has
// none.
type ESMCause uint8

// The ESM causes used here.
const (
	ESMCauseResources        ESMCause = 26 // insufficient resources
	ESMCauseUnknownAPN       ESMCause = 27 // missing or unknown
	ESMCauseUnknownPDNType   ESMCause = 28
	ESMCauseAuthentication   ESMCause = 29 // user authentication failed
	ESMCauseGateway          ESMCause = 30 // rejected by S-GW or P-GW
	ESMCauseUnspecified      ESMCause = 31
	ESMCauseUnsupported      ESMCause = 32 // service option not supported
	ESMCauseRegular          ESMCause = 36 // regular deactivation
	ESMCauseNetworkFailure   ESMCause = 38
	ESMCauseReactivation     ESMCause = 39 // reactivation requested
	ESMCauseUnknownBearer    ESMCause = 43 // invalid EPS bearer identity
	ESMCauseIPv4Only         ESMCause = 50 // PDN type IPv4 only allowed
	ESMCauseIPv6Only         ESMCause = 51
	ESMCauseNotReceived      ESMCause = 53 // ESM information not received
	ESMCauseInvalidPTI       ESMCause = 81
	ESMCauseMandatory        ESMCause = 96
	ESMCauseTypeUnknown      ESMCause = 97
	ESMCauseProtocolError    ESMCause = 111 // unspecified
	ESMCauseLastDisconnected ESMCause = 49  // last PDN disconnection not allowed
)

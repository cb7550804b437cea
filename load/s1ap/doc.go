// Package s1ap is the built-in generator for MMEs. It plays eNodeBs and UEs that
// attach, authenticate, request service and detach, in an open loop on a fixed
// schedule. One thread sends and receives by epoll. It allocates only the keys of
// new security contexts.
//
// The transport is SCTP if Params say so and the kernel has it. Otherwise it is
// S1AP frames over TCP (package s1), because most kernels of test hosts lack SCTP.
// This is not the transport of the standard, so a report of figures says so.
//
// A call is one procedure of one UE, or several in a row:
//
//	attach           Attach by IMSI with authentication, security mode and default
//	                 bearer. The UE stays attached and connected.       8 messages
//	attach-detach    The same, then detach and release.                12 messages
//	service-request  Service request of an idle UE, then release to idle.
//	                                                                    6 messages
//	mix              Procedures of idle UEs, by the weights of Params.Mix. By default, of
//	                 ten calls on average: six service requests, two tracking area
//	                 updates, an attach and a detach.
//
// A mix may also have these, each after a service request and followed by a release to
// idle:
//
//	dedicated-bearer The UE asks for a dedicated bearer, and then for its release.
//	                                                                   14 messages
//	x2-handover      The UE is at another eNodeB; the path is switched. 8 messages
//	s1-handover      The MME prepares the other eNodeB, and the UE moves there.
//	                                                                   13 messages
//
// In service-request and mix, the calls of the warm-up attach UEs, each with a
// release to idle, until all are attached. In the window, a call that needs an idle
// UE attaches one if none is idle. An attach of a mix detaches a UE instead if all
// are attached. If the mix has no detach, the trial then ends with an error.
//
// A UE may stay connected for a while (Params.Stay) before it is released or
// detaches, as UEs of real networks do. This time is not part of the latency, but
// the call is in flight.
//
// A call succeeds when its last message from the MME arrives. Its failures are:
//
//	emm-N             the MME rejects with EMM cause N (TS 24.301 clause 9.9.3.9)
//	esm-N             the MME refuses a bearer with ESM cause N (TS 24.301 clause 9.9.4.4)
//	authentication    Authentication Reject
//	untrusted         the network fails its own authentication
//	released          the MME releases the connection before the procedure ends
//	error-indication  the MME answers with Error Indication
//	detached          the network detaches the UE
//	path-switch       the MME refuses a path switch
//	handover-preparation
//	                  the MME refuses to prepare a handover
//	malformed         a message that does not parse, or whose integrity is wrong
//	timeout           the call is not over within Params.Timeout
//	connect           the eNodeB has no association with the MME
//	reset             its association ended, or its connection was reset, during the call
//
// Each eNodeB has an association with each target. Calls take the targets and the
// eNodeBs in turn. A UE stays with the MME that it attached to. With
// Params.Retries, it goes to another MME when the eNodeB has lost its association
// with that MME. A call in progress then begins again, with the same NAS security
// context unless it attaches. A call that only waits for the release, or for the end
// of its stay, succeeds. The same happens when the MME, or a director, resets
// its connection (TS 36.413 clause 8.7.1). A UE whose connection was reset stays
// attached, with and without Params.Retries: its next call is a service request.
//
// At the end the eNodeBs shut down their associations in order, so that the MME
// gets all messages.
package s1ap

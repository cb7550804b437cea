// Package sip is the built-in SIP load generator. It drives an open loop on a
// fixed schedule over UDP. One thread sends and receives in batches and allocates
// nothing per message. The generator plays the calls of NFV-VITAL (section II.B):
//
//	reg-dereg      REGISTER             -> 401 -> REGISTER with credentials -> 200
//	               REGISTER, expires 0, with credentials                    -> 200
//
//	reg-subscribe  REGISTER             -> 401 -> REGISTER with credentials -> 200
//	               SUBSCRIBE to reg     -> 200, and NOTIFY <- answered 200
//	               REGISTER, expires 0, with credentials                    -> 200
//
//	reg-invite     21 messages, counted where the generator sends or receives them:
//	               the caller registers (4), the callee registers (4); then
//	               INVITE ->, 100 <-, <- INVITE, 180 ->, <- 180, 200 ->, <- 200,
//	               ACK ->, <- ACK, BYE ->, <- BYE, 200 ->, <- 200              (13)
//
// In reg-invite the generator is both caller and callee: the function routes the
// INVITE to the callee's registered contact, which is the generator. The generator
// sends the BYE when the caller has received the 200 and the callee the ACK, in
// either order. With a function that does not send 100, there are 20 messages. The
// generator lets registrations expire.
//
// Deregistration reuses the nonce of the registration, with nc one higher (RFC
// 2617 section 3.2.2). A function that requires a fresh nonce challenges it, and
// the call has one more exchange. If a request that answers a challenge is
// challenged again, the call fails with the status as cause. The exception is a
// challenge that says the nonce was stale, which is accepted once per step. If an
// answer has several challenges, the first with MD5 counts. With digest on, a
// REGISTER that is accepted without credentials fails with cause "unchallenged",
// because the call is not the requested one.
//
// A call succeeds when its last answer arrives. It fails at the first final
// answer of 3xx to 6xx that is not an answerable challenge, with the status as
// cause. It fails with cause "timeout" if a request has no final answer, or the
// callee is not reached, within Params.Timeout. Failed calls send no CANCEL or
// BYE, and leave their registrations behind.
//
// Without Params.Retransmit, the default, a request is sent once: a lost datagram
// is a failed call, and the load does not grow when the function is slow. With
// Params.Retransmit, requests are retransmitted by timers A and E of RFC 3261
// section 17, and the callee's 200 by section 13.3.1.4, with T1 500 ms and T2 4 s.
// Retransmission ends after 64 T1, but only Params.Timeout fails the call.
//
// All requests of a call go to one target. Calls take the targets in turn.
// Dialogs honour Record-Route and Service-Route as headers; the next hop stays
// the target.
package sip

// Package sip is the built-in SIP load generator: open loop on a fixed
// schedule, over UDP, from one thread that sends and receives in batches and
// allocates nothing per message. It plays the calls of NFV-VITAL (section II.B):
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
// In reg-invite the generator is both caller and callee: the function routes
// the INVITE to the callee's registered contact, which is the generator's. The
// BYE is sent when the callee has the ACK. A function that does not send 100
// makes it 20 messages. Registrations are left to expire.
//
// Deregistration uses the nonce of the registration again, with nc one higher
// (RFC 2617 section 3.2.2); a function that wants a fresh nonce challenges it, and
// the call is one exchange longer. A request that answered a challenge and is
// challenged again fails with the status as cause, unless the challenge says that
// only the nonce was stale, which is believed once. With digest on, a REGISTER
// that is accepted without credentials fails with cause "unchallenged", for the
// call would not be the one that was asked for.
//
// A call succeeds when its last answer is in. It fails at the first final answer
// of 3xx to 6xx that is not an answerable challenge, with the status as cause, or
// with cause "timeout" when a request has had no final answer, or the callee was
// not reached, in Params.Timeout. Failed calls send no CANCEL or BYE, and leave
// their registrations behind.
//
// Without Params.Retransmit, the default, a request is sent once: a lost datagram
// is a failed call, and load does not grow when the function is slow. With it,
// timers A, E and G of RFC 3261 section 17 send again, with T1 500 ms, T2 4 s.
//
// Requests of a call go to one target, the calls to the targets in turn. Dialogs
// honour Record-Route and Service-Route as headers; the next hop stays the target.
package sip

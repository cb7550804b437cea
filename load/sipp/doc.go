// Package sipp uses the real SIPp (http://sipp.sourceforge.net, version 3.6) as a
// load generator. It starts one SIPp for each target with a scenario file, reads
// the result of each call from SIPp's own logs, and reports by the contract of
// package load.
//
// Open loop: SIPp's call limit (-l) is the size of the subscriber pool, rate x
// (timeout + call time), so that the limit never holds calls back. Each target's
// SIPp has an equal share of the pool, rounded up.
//
// Paced calls have the window's rate from the start of the warm-up, because SIPp
// keeps one rate. With several targets, the SIPps start one after the other, as
// their first calls are due. So the targets' calls do not arrive together. The order
// is exact to the few milliseconds by which the starts of processes differ.
//
// For Poisson arrivals the scenario gets a pause as its first step. An injection
// file gives the pause of each call: the difference between the schedule and SIPp's
// even rate. So SIPp plays exactly the schedule of the other generators, including
// the rise of the warm-up; random pauses would match only the counts. The accuracy
// is limited by SIPp's clock: pauses are whole milliseconds, and SIPp starts calls
// some milliseconds late, several at a time. Calls that pause are not in flight. The
// whole trial is delayed by the longest lead of the schedule over the even rate,
// about 2 sqrt(calls) / rate.
//
// Call n of SIPp, from 1, is due (n-1)/rate after the start, warm-up included.
// SIPp does not report its start time. The driver takes the latest start for
// which no call was sent before it was due. Latency is the time from the due time
// to the call's last received response, both by the time stamps of SIPp's short
// message log. SIPp starts calls by its own clock, several at a time, and that
// delay is part of the latency. If SIPp cannot start its calls within a
// millisecond, it skips the rest of them, and delays all later calls by as much.
// The line on standard error has the longest delay.
//
// A copy of a final response does not count as the last response. SIPp logs such
// copies, too, even after the end of the call.
//
// The driver reads the drops of SIPp's sockets once a second. Lost messages are an
// error of the trial, because they would count as timeouts of the function. Losses
// after the last reading are not known.
//
// After a sound trial the driver removes the message log and the injection files, which
// grow with the number of calls. Of the error log, the first MiB remains.
//
// With Params.Retransmit, SIPp retransmits the messages with retrans="500" in the
// scenario. SIPp gives a call up after 31.5 s of retransmissions, and logs that
// only if it may send BYE, so the timeout is at most 30 s. SUBSCRIBE has no
// retrans, because SIPp sends nothing while it waits for the answer to a message
// with retrans. So it could not answer a NOTIFY that overtakes the 200.
//
// The same time stamps give the calls in flight: from the first message sent to
// the last response, or to the time of the entry in SIPp's error log. They are
// exact to SIPp's clock ticks, a few milliseconds; the samples are 100 ms apart.
//
// SIPp's error log names each failed call. Every other call that was sent
// succeeded. SIPp's own totals must agree, or the driver returns an error. The
// causes are "timeout", "send", "aborted", "unanswered", the status of an
// unexpected response, or "unexpected" for an unexpected request.
//
// In reg-invite a second SIPp is the callee, at the contact that the first SIPp
// registers for it. Some functions send calls to the source of the registration
// and not to its contact (outbound, RFC 5626). Such calls reach the first SIPp,
// and every one fails as "unexpected": use the generator sip there.
//
// A user's own scenario file gets a subscriber's user part as [field0], the
// domain as [field1] and [authentication ...] as [field2]. A call succeeds if its
// scenario does.
package sipp

// Package sipp drives the real SIPp (http://sipp.sourceforge.net, version 3.6)
// as a load generator: it starts one SIPp for each target with a scenario file,
// reads what became of each call from SIPp's own logs, and reports as the
// contract of package load asks.
//
// Open loop: SIPp's call limit (-l) is the size of the subscriber pool, rate x
// (timeout + call time), so that it never holds calls back.
//
// Paced calls have the window's rate from the beginning of the warm-up: SIPp
// keeps one rate. For Poisson arrivals the scenario gets a first step: a pause
// that an injection file gives for each call, the difference between the
// schedule and SIPp's even rate. So SIPp plays the very schedule of the other
// generators, the rise of the warm-up included, and not only the counts that
// random pauses would give. It is as exact as SIPp's clock: pauses are whole
// milliseconds, and SIPp makes calls some milliseconds late, several at a time.
// Calls that pause are not in flight. The whole trial is later by as much as the
// schedule is ever ahead of the even rate, about 2 sqrt(calls) / rate.
//
// What is scheduled: call n of SIPp, from 1, is due (n-1)/rate after the
// beginning, warm-up included. SIPp does not tell its own beginning, so it is
// taken as late as it can be without any call being sent before it was due.
// Latency is from the due time to the call's last received response, both by the
// time stamps of SIPp's short message log; SIPp places calls by a clock of its
// own, several at a time, and that is in the latency.
//
// Calls in flight are counted by the same stamps: from the first message sent to
// the last response, or to the time of the entry of SIPp's error log. They are
// exact to the clock ticks of SIPp, a few milliseconds, against samples 100 ms
// apart.
//
// What became of a call: SIPp's error log names each call that failed; every
// other call that was sent succeeded, and SIPp's own totals must agree, or the
// report is an error. The causes are "timeout", "send", the status of an
// unexpected response, or "unexpected" for an unexpected request.
//
// In reg-invite a second SIPp answers as callee, at the contact that the first
// registers for it. A function that sends calls to where the registration came
// from, and not to its contact (outbound, RFC 5626), reaches the first, and every
// call fails as "unexpected": use the generator sip there.
//
// A scenario file of the user's own gets a subscriber's user part as [field0],
// the domain as [field1] and [authentication ...] as [field2]; a call succeeds
// when its scenario does.
package sipp

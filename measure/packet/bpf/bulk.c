// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Writes probes into frames of the kernel (BPF_PROG_TEST_RUN with
// BPF_F_TEST_XDP_LIVE_FRAMES), sends them on an interface, at once or on a
// schedule, and counts the frames that the interface takes.

#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

char __license[] SEC("license") = "GPL";

// A probe in a frame of the smallest size, in words. frame.go has the layout: from
// byte 48 on, the sequence number, the scheduled time, and the delay until it was
// sent.
#define WORDS 16
#define SEQUENCE 12
#define SCHEDULED 13
#define LATE 15

// A histogram counts the delays of frames in steps of 1 ns below 256 ns, and above
// that in steps of the power of two that leaves 8 significant bits.
#define STEPS (1 << 14)

__u32 words[WORDS];    // of every frame
__u32 out;             // index of the outgoing interface
__u32 inode;           // of the interface's network namespace
__u64 offset;          // of CLOCK_REALTIME from CLOCK_MONOTONIC; ns
__u64 begin;           // when the first frame was due; ns of CLOCK_MONOTONIC
__u64 interval;        // between frames, in 1/65536 ns; 0: there is no schedule
__u32 most;            // frames to send
__u32 sent;            // frames so far
__u64 first, last;     // when the first and the last frame were sent; ns
__u64 behind;          // delay of the last frame; ns
__u64 latest;          // largest delay; ns
__u32 lateness[STEPS]; // frames, by delay
__u64 taken;           // frames that the interface took

static __always_inline __u32 step_of(__u64 late)
{
	__u32 shift = 0, bits;

#pragma unroll
	for (bits = 32; bits; bits >>= 1) {
		if (late >> shift >> bits >> 8)
			shift += bits;
	}
	if (late >> shift >> 8)
		shift++;
	return (shift << 8) + (late >> shift);
}

static long is_due(__u32 turns, void *due)
{
	return bpf_ktime_get_ns() >= *(__u64 *)due;
}

SEC("xdp")
int bulk(struct xdp_md *context)
{
	__u32 *frame = (void *)(long)context->data;
	__u64 now, due, late;
	__u32 step;
	int i;

	if ((void *)(frame + WORDS) > (void *)(long)context->data_end)
		return XDP_DROP;
	// The kernel runs whole batches, and repeats a batch after a signal.
	if (sent >= most)
		return XDP_DROP;
	// Write the whole frame, because the kernel reuses frames without clearing them.
#pragma unroll
	for (i = 0; i < WORDS; i++)
		frame[i] = words[i];
	now = bpf_ktime_get_ns();
	due = now;
	if (!sent)
		begin = now;
	if (interval) {
		due = begin + (interval * sent >> 16);
		if (now < due) {
			// A turn takes tens of ns, so this many turns exceed the longest interval.
			bpf_loop(1 << 18, is_due, &due, 0);
			now = bpf_ktime_get_ns();
		}
		late = now - due;
		step = step_of(late);
		barrier_var(step); // shows the bound to the verifier
		lateness[step & (STEPS - 1)]++;
		behind = late;
		if (late > latest)
			latest = late;
		frame[LATE] = bpf_htonl(late < 0xffffffff ? late : 0xffffffff);
	}
	now += offset;
	due += offset;
	if (!sent)
		first = now;
	last = now;
	frame[SEQUENCE] = bpf_htonl(sent++);
	frame[SCHEDULED] = bpf_htonl(due >> 32);
	frame[SCHEDULED + 1] = bpf_htonl(due);
	return bpf_redirect(out, 0);
}

struct ns_common {
	unsigned int inum;
} __attribute__((preserve_access_index));

struct net {
	struct ns_common ns;
} __attribute__((preserve_access_index));

typedef struct {
	struct net *net;
} __attribute__((preserve_access_index)) possible_net_t;

struct net_device {
	int ifindex;
	possible_net_t nd_net;
} __attribute__((preserve_access_index));

// The event follows each small batch of frames. Its arguments are the source and the
// target device, how many frames the target took, how many it refused, and why.
SEC("raw_tp/xdp_devmap_xmit")
int transmitted(struct bpf_raw_tracepoint_args *context)
{
	struct net_device *to = (void *)context->args[1];

	if (BPF_CORE_READ(to, ifindex) == out && BPF_CORE_READ(to, nd_net.net, ns.inum) == inode)
		taken += (int)context->args[2];
	return 0;
}

//go:build ignore

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The forwarder in the kernel. frame.go says which frames it forwards, and which it leaves to the host.

#include <linux/bpf.h>
#include <linux/if_ether.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

char __license[] SEC("license") = "Dual BSD/GPL";

enum verdict { FORWARDED, SHORT, NOT_OURS, NOT_IP, VERDICTS };

struct count {
	__u64 frames;
	__u64 bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, VERDICTS);
	__type(key, __u32);
	__type(value, struct count);
} counts SEC(".maps");

// One entry: the interface to send on.
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} out SEC(".maps");

struct mac {
	__u16 part[3];
};

volatile const struct mac own;    // address of the receiving interface
volatile const struct mac source; // source address of sent frames
volatile const struct mac next;   // destination address of sent frames
volatile const __u64 delay;       // of each frame; ns

struct tag {
	__be16 control;
	__be16 type;
} __attribute__((packed));

static __always_inline int is_tag(__be16 type)
{
	return type == bpf_htons(ETH_P_8021Q) || type == bpf_htons(ETH_P_8021AD);
}

static __always_inline enum verdict classify(struct ethhdr *eth, void *end)
{
	const __u16 *to;
	struct tag *tag;
	__be16 type;
	int i;

	if ((void *)(eth + 1) > end)
		return SHORT;
	to = (const __u16 *)eth->h_dest;
	if (to[0] != own.part[0] || to[1] != own.part[1] || to[2] != own.part[2])
		return NOT_OURS;
	type = eth->h_proto;
	tag = (void *)(eth + 1);
#pragma unroll
	for (i = 0; i < 2; i++) {
		if (!is_tag(type))
			break;
		if ((void *)(tag + 1) > end)
			return SHORT;
		type = tag->type;
		tag++;
	}
	if (type != bpf_htons(ETH_P_IP) && type != bpf_htons(ETH_P_IPV6))
		return NOT_IP;
	return FORWARDED;
}

static long is_due(__u32 turns, void *until)
{
	return bpf_ktime_get_ns() >= *(__u64 *)until;
}

SEC("xdp")
int forward(struct xdp_md *ctx)
{
	void *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = (void *)(long)ctx->data;
	__u32 verdict = classify(eth, end);
	struct count *count = bpf_map_lookup_elem(&counts, &verdict);
	__u16 *at;
	int i;

	if (count) {
		count->frames++;
		count->bytes += end - (void *)eth;
	}
	if (verdict != FORWARDED || (void *)(eth + 1) > end)
		return XDP_PASS;
	at = (__u16 *)eth;
#pragma unroll
	for (i = 0; i < 3; i++) {
		at[i] = next.part[i];
		at[i + 3] = source.part[i];
	}
	if (delay) {
		__u64 until = bpf_ktime_get_ns() + delay;
		// A turn takes tens of ns, so this many turns exceed the longest delay.
		bpf_loop(1 << 20, is_due, &until, 0);
	}
	// Redirect even if the frame leaves by the interface that received it: XDP_TX
	// on a veth wakes only another XDP program at the other end.
	return bpf_redirect_map(&out, 0, XDP_DROP);
}

// bounce returns each frame on its own interface. It shows whether the other
// end takes frames from XDP_TX.
SEC("xdp")
int bounce(struct xdp_md *ctx)
{
	return XDP_TX;
}

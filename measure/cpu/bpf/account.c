// SPDX-License-Identifier: GPL-2.0
// Charges the time of every CPU to what it is spent on, to the nanosecond and
// without ticks: each change from one kind of work to another is an event of the
// kernel, at which the time since the last one is added up.

#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

char __license[] SEC("license") = "GPL";

#define PF_KTHREAD 0x00200000

struct task_struct {
	int pid;
	unsigned int flags;
	char comm[16];
} __attribute__((preserve_access_index));

enum kind { IDLE, USER, KERNEL, SOFTIRQ, HARDIRQ, INSTRUMENT, KINDS };

struct account {
	__u64 last; // when the time was last charged; ns of CLOCK_MONOTONIC; 0: not begun
	__u32 mode; // of the task: IDLE, USER, KERNEL or INSTRUMENT
	__u32 user; // what mode is once the task is in user mode
	__u32 softirq, hardirq; // it serves one now
	__u64 ns[KINDS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct account);
} accounts SEC(".maps");

// The mode in which a task was switched out: in the middle of a system call it
// comes back to the kernel, else to user mode.
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 32768);
	__type(key, __u32);
	__type(value, __u32);
} modes SEC(".maps");

// instrument says whether a task is part of the measuring: 1 in user mode, 2
// altogether.
static __always_inline int instrument(struct task_struct *t)
{
	char name[8];

	__builtin_memset(name, 0, sizeof(name));
	bpf_probe_read_kernel(name, sizeof(name), &t->comm);
	if (name[0] != 'v' || name[1] != 't' || name[2] != '-' || name[3] != 's')
		return 0;
	if (name[4] == 'e' && name[5] == 'n' && name[6] == 'd' && name[7] == 0)
		return 1;
	if (name[4] == 'o' && name[5] == 'a' && name[6] == 'k' && name[7] == 0)
		return 2;
	return 0;
}

static __always_inline void enter(struct account *a, struct task_struct *t, int in_kernel)
{
	int own = instrument(t);

	a->user = own ? INSTRUMENT : USER;
	if (t->pid == 0)
		a->mode = IDLE;
	else if (own == 2)
		a->mode = INSTRUMENT;
	else if (t->flags & PF_KTHREAD)
		a->mode = KERNEL;
	else
		a->mode = in_kernel ? KERNEL : a->user;
}

// begin charges the time until now; end leaves out what the handler itself took.
static __always_inline struct account *begin(void)
{
	__u32 zero = 0;
	__u64 now = bpf_ktime_get_ns();
	struct account *a = bpf_map_lookup_elem(&accounts, &zero);

	if (!a)
		return 0;
	if (!a->last) {
		enter(a, (struct task_struct *)bpf_get_current_task_btf(), 0);
	} else {
		__u32 kind = a->hardirq ? HARDIRQ : a->softirq ? SOFTIRQ : a->mode;

		if (kind < KINDS && now > a->last)
			a->ns[kind] += now - a->last;
	}
	a->last = now;
	return a;
}

static __always_inline int end(struct account *a)
{
	__u64 now = bpf_ktime_get_ns();

	a->ns[INSTRUMENT] += now - a->last;
	a->last = now;
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, _Bool preempt, struct task_struct *prev, struct task_struct *next)
{
	struct account *a = begin();
	__u32 pid, in_kernel, *was;

	if (!a)
		return 0;
	pid = prev->pid;
	in_kernel = a->mode == KERNEL;
	if (pid)
		bpf_map_update_elem(&modes, &pid, &in_kernel, BPF_ANY);
	pid = next->pid;
	was = bpf_map_lookup_elem(&modes, &pid);
	enter(a, next, was && *was);
	return end(a);
}

SEC("tp_btf/sys_enter")
int BPF_PROG(on_enter)
{
	struct account *a = begin();

	if (!a)
		return 0;
	a->mode = KERNEL;
	return end(a);
}

SEC("tp_btf/sys_exit")
int BPF_PROG(on_exit)
{
	struct account *a = begin();

	if (!a)
		return 0;
	a->mode = a->user;
	return end(a);
}

#define TOGGLE(name, event, field, value)	\
	SEC("tp_btf/" event)			\
	int BPF_PROG(name)			\
	{					\
		struct account *a = begin();	\
						\
		if (!a)				\
			return 0;		\
		a->field = value;		\
		return end(a);			\
	}

TOGGLE(on_softirq, "softirq_entry", softirq, 1)
TOGGLE(off_softirq, "softirq_exit", softirq, 0)
TOGGLE(on_hardirq, "irq_handler_entry", hardirq, 1)
TOGGLE(off_hardirq, "irq_handler_exit", hardirq, 0)
TOGGLE(on_timer, "local_timer_entry", hardirq, 1)
TOGGLE(off_timer, "local_timer_exit", hardirq, 0)

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Charges the time of every CPU to kinds of work, in nanoseconds and without
// ticks. A kernel event marks each change from one kind of work to another, and
// its handler charges the time since the previous event.

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

enum kind { IDLE, USER, KERNEL, SOFTIRQ, HARDIRQ, INSTRUMENT };

// Events of a CPU. INTERRUPT: the beginning of a hard interrupt. SWITCH: a switch
// of tasks. HANDLED: the handling of an event itself.
enum event { OTHER, INTERRUPT, SWITCH, HANDLED };

// Time that these events do not show, in ns; measured when the Meter is opened.
volatile __u64 unseen; // of an interrupt, before its first event: the entry into the kernel, and an exit to the hypervisor
volatile __u64 unclear; // of the handling of an event, outside of its own clock readings

// Samples for that, of events of the kind wanted in the thread probing. The thread
// stores its latest clock reading at the address looked.
#define SAMPLES 256
volatile __u64 looked, samples[SAMPLES];
volatile __u32 probing, wanted, taken;

volatile _Bool ends = 1; // this kernel has the event at the end of a switch

struct account {
	__u64 last; // when time was last charged; ns of CLOCK_MONOTONIC; 0: not started
	__u32 mode; // of the task: IDLE, USER, KERNEL or INSTRUMENT
	__u32 user; // the mode of the task in user mode
	__u32 back; // the task returns to user mode after a switch
	__u32 softirq, hardirq; // the CPU handles one now
	__u64 ns[8]; // one per kind, and two more: a mask shows the bounds to the verifier
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct account);
} accounts SEC(".maps");

// Whether a task was in the kernel when it was switched out. In the middle of a
// system call it resumes in the kernel, otherwise in user mode.
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 32768);
	__type(key, __u32);
	__type(value, __u32);
} modes SEC(".maps");

// instrument returns whether a task belongs to the measurement: 1 in user mode
// only, 2 always, 0 never.
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

static __always_inline void enter(struct account *a, struct task_struct *t)
{
	int own = instrument(t);

	a->back = 0;
	a->user = own ? INSTRUMENT : USER;
	if (t->pid == 0)
		a->mode = IDLE;
	else if (own == 2)
		a->mode = INSTRUMENT;
	else if (t->flags & PF_KTHREAD)
		a->mode = KERNEL;
	else
		a->mode = a->user;
}

static __always_inline void sample(struct account *a, __u64 now, enum event what)
{
	__u64 then = a->last;
	__u32 n = taken;

	if (!probing || what != wanted || (__u32)bpf_get_current_pid_tgid() != probing || n >= SAMPLES)
		return;
	if (what == INTERRUPT && bpf_probe_read_user(&then, sizeof(then), (void *)looked))
		return;
	samples[n] = now - then;
	taken = n + 1;
}

// charge charges the time since the last event.
static __always_inline void charge(struct account *a, __u64 now, enum event what)
{
	__u64 took = now > a->last ? now - a->last : 0, before = 0;
	__u32 kind = a->hardirq ? HARDIRQ : a->softirq ? SOFTIRQ : a->mode;

	if (what == INTERRUPT && kind != HARDIRQ && kind != IDLE) {
		before = took < unseen ? took : unseen;
		a->ns[HARDIRQ] += before;
	}
	// A task leaves user mode only by a system call or an interrupt. A switch
	// happens at its end, in the kernel.
	if (what == SWITCH && (kind == USER || kind == INSTRUMENT))
		kind = KERNEL;
	a->ns[kind & 7] += took - before;
}

// begin charges the time until now; end charges the handler's own time to INSTRUMENT.
static __always_inline struct account *begin(enum event what)
{
	__u32 zero = 0;
	__u64 now = bpf_ktime_get_ns();
	struct account *a = bpf_map_lookup_elem(&accounts, &zero);

	if (!a)
		return 0;
	sample(a, now, what);
	if (a->last)
		charge(a, now, what);
	else
		enter(a, (struct task_struct *)bpf_get_current_task_btf());
	a->last = now;
	return a;
}

static __always_inline int end(struct account *a)
{
	__u64 now = bpf_ktime_get_ns();

	sample(a, now, HANDLED);
	now += unclear;
	a->ns[INSTRUMENT] += now - a->last;
	a->last = now;
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, _Bool preempt, struct task_struct *prev, struct task_struct *next)
{
	struct account *a = begin(SWITCH);
	__u32 pid, in_kernel, *was;

	if (!a)
		return 0;
	pid = prev->pid;
	in_kernel = a->mode == KERNEL && !a->back;
	if (pid)
		bpf_map_update_elem(&modes, &pid, &in_kernel, BPF_ANY);
	pid = next->pid;
	was = bpf_map_lookup_elem(&modes, &pid);
	enter(a, next);
	in_kernel = was && *was;
	if (a->mode == USER || a->mode == INSTRUMENT) {
		a->back = ends && !in_kernel;
		if (ends || in_kernel)
			a->mode = KERNEL;
	}
	return end(a);
}

// The end of a switch, in the new task. Kernels before 6.16 lack this event.
SEC("tp_btf/sched_exit_tp")
int BPF_PROG(off_switch)
{
	struct account *a = begin(OTHER);

	if (!a)
		return 0;
	if (a->back)
		a->mode = a->user;
	a->back = 0;
	return end(a);
}

SEC("tp_btf/sys_enter")
int BPF_PROG(on_system)
{
	struct account *a = begin(OTHER);

	if (!a)
		return 0;
	a->mode = KERNEL;
	a->back = 0;
	return end(a);
}

SEC("tp_btf/sys_exit")
int BPF_PROG(off_system)
{
	struct account *a = begin(OTHER);

	if (!a)
		return 0;
	a->mode = a->user;
	a->back = 0;
	return end(a);
}

#define TOGGLE(name, event, field, value, what)	\
	SEC("tp_btf/" event)			\
	int BPF_PROG(name)			\
	{					\
		struct account *a = begin(what);	\
						\
		if (!a)				\
			return 0;		\
		a->field = value;		\
		return end(a);			\
	}

#define HARD(name, event)				\
	TOGGLE(on_##name, event "_entry", hardirq, 1, INTERRUPT)	\
	TOGGLE(off_##name, event "_exit", hardirq, 0, OTHER)

TOGGLE(on_softirq, "softirq_entry", softirq, 1, OTHER)
TOGGLE(off_softirq, "softirq_exit", softirq, 0, OTHER)
HARD(hardirq, "irq_handler")
HARD(timer, "local_timer")
HARD(reschedule, "reschedule")
HARD(call, "call_function")
HARD(call_single, "call_function_single")
HARD(work, "irq_work")

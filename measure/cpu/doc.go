// Package cpu measures the CPU time of work in two independent ways. Neither uses
// the kernel's ticks, which alias with work that arrives at a fixed pace:
//
//   - a Meter counts the kernel's own events by BPF: every switch of tasks, system
//     call, interrupt and softirq. It splits the time into that of user processes,
//     of the kernel on behalf of processes, and of interrupts. When it is opened, it
//     measures on work of its own what the events cannot see (see probe);
//   - a soaker (RunSoak) is a process of idle priority on one CPU that counts the
//     work it gets done. Others took the time of the work that it misses. It sees
//     all that others do, but cannot tell who they are.
package cpu

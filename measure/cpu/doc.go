// Package cpu measures the CPU time that work takes in two ways that know
// nothing of each other, both without the kernel's ticks, which alias with work
// that comes at a fixed pace:
//
//   - a Meter has the kernel's own events counted by BPF: every switch of tasks,
//     system call, interrupt and softirq. It splits the time into that of user
//     processes, of the kernel on behalf of processes, and of interrupts. What the
//     events cannot see it measures when it is opened (see probe), on work of its own;
//   - a soaker (RunSoak) is a process of idle priority on a CPU that counts what it
//     gets done; what it does not get done, others took from it. It sees all that
//     anyone does, and cannot tell who.
package cpu

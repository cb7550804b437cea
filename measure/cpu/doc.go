// Package cpu measures the CPU time of work in two independent ways. Neither uses
// the kernel's ticks, which alias with work that arrives at a fixed pace:
//
//   - a Meter counts the kernel's own events by BPF: every switch of tasks, system
//     call, interrupt and softirq. It splits the time into user processes, the
//     kernel on behalf of processes, and interrupts. When it is opened, it
//     measures on its own work the time that the events miss (see probe);
//   - a soaker (RunSoak) is a process of idle priority on one CPU that counts its
//     laps of work. Others used the time of the missed laps. A soaker measures all
//     time that others use, but does not know who used it.
package cpu

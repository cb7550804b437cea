// Package unikernel packs one application, the libraries that it needs and a
// Linux kernel cut down to them into one file that a virtual machine boots.
//
// That is the approach of Lupine Linux (Kuo et al., "A Linux in Unikernel
// Clothing", EuroSys 2020): unikernel-like in what is left out, a single
// program on a specialised kernel without users, modules or services. It is
// not a library operating system: the application runs in user mode, and its
// system calls are system calls.
package unikernel

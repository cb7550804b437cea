// Package unikernel packs one application, the libraries that it needs, and a Linux kernel
// reduced to their needs into one file that a virtual machine boots.
//
// It follows Lupine Linux (Kuo et al., "A Linux in Unikernel Clothing", EuroSys 2020): a
// single program on a specialised kernel without users, modules or services. It is not a
// library operating system: the application runs in user mode and makes system calls.
package unikernel

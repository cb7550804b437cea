// Package image makes, from one description of an application, what each
// substrate boots or runs: a container image, a layer for a virtual machine, a
// unikernel. All hold the same tree of files, so that a comparison of
// substrates compares nothing but them.
package image

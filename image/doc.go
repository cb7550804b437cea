// Package image builds, from one description of an application, the image that each substrate
// boots or runs: a container image, a layer for a virtual machine, a unikernel. All images
// hold the same tree of files, so a comparison of substrates compares only the substrates.
package image

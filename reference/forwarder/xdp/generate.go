package xdp

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -tags linux -target bpfel program forwarder.bpf.c -- -O2 -g -Wall -I/usr/include/x86_64-linux-gnu

package cpu

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -go-package cpu -target bpfel -cc clang -cflags "-O2 -g -Wall -I/usr/include/x86_64-linux-gnu" account bpf/account.c

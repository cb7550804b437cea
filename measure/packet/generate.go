package packet

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -go-package packet -target bpfel -cc clang -cflags "-O2 -g -Wall -I/usr/include/x86_64-linux-gnu" bulk bpf/bulk.c

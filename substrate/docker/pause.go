package docker

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"io"
	"runtime"

	"vitrine"
)

// pauseName is the program's file name, as ps shows it.
const pauseName = "vitrine-pause"

// pauseCode returns the code of the program that holds a sandbox's namespaces open. The
// program is process 1 of the instance's PID namespace. It ignores SIGCHLD, so that the
// kernel reaps orphans, and then sleeps forever:
//
//	rt_sigaction(SIGCHLD, {SIG_IGN}, NULL, 8); for (;;) pause();
//
// As machine code the program has about 200 bytes and starts at once. A copy of this binary
// would be tens of megabytes per image, and is not static under go test -race.
func pauseCode(arch string) (machine elf.Machine, code []byte) {
	switch arch {
	case "amd64":
		return elf.EM_X86_64, []byte{
			0xb8, 13, 0, 0, 0, //             mov  eax, 13 (rt_sigaction)
			0xbf, 17, 0, 0, 0, //             mov  edi, 17 (SIGCHLD)
			0x48, 0x8d, 0x35, 19, 0, 0, 0, // lea  rsi, [rip+19] (the sigaction after the code)
			0x31, 0xd2, //                    xor  edx, edx
			0x41, 0xba, 8, 0, 0, 0, //        mov  r10d, 8
			0x0f, 0x05, //                    syscall
			0xb8, 34, 0, 0, 0, //             mov  eax, 34 (pause)
			0x0f, 0x05, //                    syscall
			0xeb, 0xf7, //                    jmp  -9 (mov eax, 34)
		}
	case "arm64":
		code, _ = binary.Append(nil, binary.LittleEndian, []uint32{ // cannot fail: the size is fixed
			0xd28010c8, // mov x8, #134 (rt_sigaction)
			0xd2800220, // mov x0, #17 (SIGCHLD)
			0x10000181, // adr x1, +48 (the sigaction after the code)
			0xd2800002, // mov x2, #0
			0xd2800103, // mov x3, #8
			0xd4000001, // svc #0
			0xd2800928, // mov x8, #73 (ppoll: arm64 has no pause)
			0xd2800000, // mov x0, #0
			0xd2800001, // mov x1, #0
			0xd2800002, // mov x2, #0
			0xd2800003, // mov x3, #0
			0xd2800004, // mov x4, #0
			0xd4000001, // svc #0
			0x17fffff9, // b   -28 (mov x8, #73)
		})
		return elf.EM_AARCH64, code
	}
	return elf.EM_NONE, nil
}

// pauseProgram returns the pause program as a static ELF executable.
func pauseProgram() ([]byte, error) {
	machine, code := pauseCode(runtime.GOARCH)
	if code == nil {
		return nil, &vitrine.Unsupported{What: "docker", Missing: "a pause program for " + runtime.GOARCH, Do: "use an amd64 or arm64 host, or the substrate process"}
	}
	const base, headers = 0x400000, 64 + 56
	sigaction := [4]uint64{1} // kernel_sigaction{handler: SIG_IGN, flags, restorer, mask}
	size := uint64(headers + len(code) + 32)
	header := elf.Header64{
		Ident: [16]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT),
		Entry: base + headers, Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1,
	}
	segment := elf.Prog64{
		Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X),
		Vaddr: base, Paddr: base, Filesz: size, Memsz: size, Align: 0x1000,
	}
	var program bytes.Buffer
	for _, part := range []any{header, segment, code, sigaction} {
		if err := binary.Write(&program, binary.LittleEndian, part); err != nil {
			return nil, err
		}
	}
	return program.Bytes(), nil
}

// pauseStatic returns the pause program as the content of an image.
func pauseStatic() (static, error) {
	program, err := pauseProgram()
	return static{
		name: pauseName, key: pauseName, size: int64(len(program)),
		open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(program)), nil },
	}, err
}

/*
 * A kernel that prints its command line on the first serial line. Built with
 * -DPVH it has the entry of PVH (Xen, docs/misc/pvh.pandoc) and resets the
 * machine when it is done; else it has that of the Multiboot Specification,
 * version 0.6.96, and goes on for ever.
 */
	.code32
	.text
#ifndef PVH
	.align 4
	.long 0x1badb002, 0, -0x1badb002 /* magic, flags, checksum */
#endif
	.globl _start
_start:
#ifdef PVH
	mov 24(%ebx), %edi /* cmdline_paddr of hvm_start_info */
	mov $pvh, %esi
#else
	mov 16(%ebx), %edi /* cmdline of the Multiboot information */
	mov $multiboot, %esi
#endif
	mov $0x3f8, %dx
	call print
	mov %edi, %esi
	call print
	mov $'\n', %al
	out %al, %dx
#ifdef PVH
	mov $0xfe, %al /* the keyboard controller's reset line */
	out %al, $0x64
#endif
1:	hlt
	jmp 1b

print:	lodsb
	test %al, %al
	jz 2f
	out %al, %dx
	jmp print
2:	ret

pvh:	.asciz "PVH: "
multiboot: .asciz "multiboot: "

#ifdef PVH
	.section .note.Xen, "a", @note
	.long 4, 4, 18 /* name, descriptor, XEN_ELFNOTE_PHYS32_ENTRY */
	.asciz "Xen"
	.long _start
#endif
	.section .note.GNU-stack, "", @progbits

/* Writes 100 bytes and exits: static and without libc, like the target of the benchmark. */
#if defined(__x86_64__)
__asm__(".globl _start\n"
        "_start:\n"
        "    movl $1, %eax\n" /* write */
        "    movl $1, %edi\n"
        "    leaq text(%rip), %rsi\n"
        "    movl $100, %edx\n"
        "    syscall\n"
        "    movl $231, %eax\n" /* exit_group */
        "    xorl %edi, %edi\n"
        "    syscall\n"
        "    hlt\n"
        "text: .fill 99, 1, 'x'\n"
        "    .byte 10\n"
        ".section .note.GNU-stack,\"\",@progbits\n");
#elif defined(__aarch64__)
__asm__(".globl _start\n"
        "_start:\n"
        "    mov x8, #64\n" /* write */
        "    mov x0, #1\n"
        "    adr x1, text\n"
        "    mov x2, #100\n"
        "    svc #0\n"
        "    mov x8, #94\n" /* exit_group */
        "    mov x0, #0\n"
        "    svc #0\n"
        "    brk #1\n"
        "text: .fill 99, 1, 'x'\n"
        "    .byte 10\n"
        ".section .note.GNU-stack,\"\",%progbits\n");
#else
#error "writer.c knows x86-64 and aarch64 only"
#endif

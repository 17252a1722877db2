/* The program that every method launches: it only exits with 0. It is static and without libc: a larger program would add
 * the same time to every method and hide the differences between them. */
#if defined(__x86_64__)
__asm__(".globl _start\n"
        "_start:\n"
        "    movl $231, %eax\n" /* exit_group */
        "    xorl %edi, %edi\n"
        "    syscall\n"
        "    hlt\n"
        ".section .note.GNU-stack,\"\",@progbits\n");
#elif defined(__aarch64__)
__asm__(".globl _start\n"
        "_start:\n"
        "    mov x8, #94\n" /* exit_group */
        "    mov x0, #0\n"
        "    svc #0\n"
        "    brk #1\n"
        ".section .note.GNU-stack,\"\",%progbits\n");
#else
#error "target.c knows x86-64 and aarch64 only; add the exit_group call of this machine"
#endif

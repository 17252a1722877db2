/* The program that is launched: it prints one line and ends. Static and without libc, so that little is timed beside the launch. */
#if defined(__x86_64__)
__asm__(".globl _start\n"
        "_start:\n"
        "    movl $1, %eax\n" /* write */
        "    movl $1, %edi\n"
        "    leaq line(%rip), %rsi\n"
        "    movl $14, %edx\n"
        "    syscall\n"
        "    movl $231, %eax\n" /* exit_group */
        "    xorl %edi, %edi\n"
        "    syscall\n"
        "    hlt\n"
        "line: .ascii \"Hello, world!\\n\"\n"
        ".section .note.GNU-stack,\"\",@progbits\n");
#elif defined(__aarch64__)
__asm__(".globl _start\n"
        "_start:\n"
        "    mov x8, #64\n" /* write */
        "    mov x0, #1\n"
        "    adr x1, line\n"
        "    mov x2, #14\n"
        "    svc #0\n"
        "    mov x8, #94\n" /* exit_group */
        "    mov x0, #0\n"
        "    svc #0\n"
        "    brk #1\n"
        "line: .ascii \"Hello, world!\\n\"\n"
        ".section .note.GNU-stack,\"\",%progbits\n");
#else
#error "hello.c knows x86-64 and aarch64 only; add the two calls of this machine"
#endif

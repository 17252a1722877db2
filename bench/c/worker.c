/* The program of the conditions in which the child must do more than exit. Static and without libc, as target.c.
 *
 *     worker N    writes N bytes and exits with 0 (with 1 if they could not be written)
 *     worker      waits for the end of its standard input, and exits with 0 */
typedef unsigned long word;

#if defined(__x86_64__)
enum { SYS_READ = 0, SYS_WRITE = 1, SYS_EXIT = 231 };

static long call(long number, word a, word b, word c)
{
    long answer;
    __asm__ volatile("syscall" : "=a"(answer) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return answer;
}

__asm__(".globl _start\n"
        "_start:\n"
        "    movq %rsp, %rdi\n"
        "    andq $-16, %rsp\n"
        "    call begin\n"
        "    hlt\n"
        ".section .note.GNU-stack,\"\",@progbits\n"
        ".text\n");
#elif defined(__aarch64__)
enum { SYS_READ = 63, SYS_WRITE = 64, SYS_EXIT = 94 };

static long call(long number, word a, word b, word c)
{
    register word x8 __asm__("x8") = (word)number;
    register word x0 __asm__("x0") = a;
    register word x1 __asm__("x1") = b;
    register word x2 __asm__("x2") = c;
    __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
    return (long)x0;
}

__asm__(".globl _start\n"
        "_start:\n"
        "    mov x0, sp\n"
        "    bl begin\n"
        "    brk #1\n"
        ".section .note.GNU-stack,\"\",%progbits\n"
        ".text\n");
#else
#error "worker.c knows x86-64 and aarch64 only; add the calls of this machine"
#endif

static char buffer[64 * 1024];

/* What the kernel leaves on the stack: argc, argv. */
__attribute__((used, noreturn)) void begin(const word *stack)
{
    const char *digits = stack[0] > 1 ? (const char *)stack[2] : "";
    word rest = 0;
    if (!*digits)
        while (call(SYS_READ, 0, (word)buffer, sizeof buffer) > 0)
            ;
    while (*digits)
        rest = rest * 10 + (word)(*digits++ - '0');
    for (word i = 0; i < sizeof buffer; i++)
        buffer[i] = 'x';
    while (rest > 0) {
        long wrote = call(SYS_WRITE, 1, (word)buffer, rest < sizeof buffer ? rest : sizeof buffer);
        if (wrote <= 0)
            call(SYS_EXIT, 1, 0, 0);
        rest -= (word)wrote;
    }
    for (;;)
        call(SYS_EXIT, 0, 0, 0);
}

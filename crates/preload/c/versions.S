/* glibc on x86-64 has two versions of posix_spawn and posix_spawnp. The old one runs a file without #! with a shell, as execvp(3)
 * does. Each is a jump, so setjmp(3), unwinding and cancellation see only the caller. */

    .macro JUMP symbol, function
    .text
    .p2align 4
    .globl \symbol
    .type \symbol, %function
\symbol:
    .cfi_startproc
#ifdef __x86_64__
    endbr64
    jmp \function
#else
    hint #34 /* bti c */
    b \function
#endif
    .cfi_endproc
    .size \symbol, . - \symbol
    .endm

#ifdef __x86_64__
    JUMP spawn_new, forkless_preload_posix_spawn
    JUMP spawnp_new, forkless_preload_posix_spawnp
    JUMP spawn_old, forkless_preload_posix_spawn_old
    JUMP spawnp_old, forkless_preload_posix_spawnp_old
    .symver spawn_new, posix_spawn@@GLIBC_2.15
    .symver spawnp_new, posix_spawnp@@GLIBC_2.15
    .symver spawn_old, posix_spawn@GLIBC_2.2.5
    .symver spawnp_old, posix_spawnp@GLIBC_2.2.5
#else
    JUMP posix_spawn, forkless_preload_posix_spawn
    JUMP posix_spawnp, forkless_preload_posix_spawnp
#endif

    .section .note.GNU-stack, "", %progbits

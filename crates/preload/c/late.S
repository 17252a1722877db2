/* What a program runs of this library until it first starts a program: the entries of the exported functions.
 * docs/design/late.md says why, and what the macros do. `late.list`, which `cargo xtask dist` writes, uses them. */

    .section .note.GNU-stack, "", %progbits

/* ENTRY name, version: the exported function `name`. If the library is prepared, the call goes to `forkless_own_name`; else
 * `forkless_preload_prepare` says where. version: of libc's function, "" for the default.
 * EARLY name: the same, but before the library is prepared the call goes to `forkless_early_name`.
 * LIBC name: `forkless_libc_name`, which is libc's function `name`, looked up by the loader at the first call.
 * No entry has a frame: setjmp(3), unwinding and cancellation see only the caller. */

    .macro END name
    .cfi_endproc
    .size \name, . - \name
    .endm

/* What `forkless_preload_prepare` reads: see `struct entry` in late.c. */
    .macro RECORD label, own, name, version
    .pushsection .rodata.late, "a"
    .p2align 2
\label:
    .long \own - \label
    .asciz "\name"
    .asciz "\version"
    .popsection
    .endm

#if defined(__x86_64__)

    .macro BEGIN name
    .text
    .p2align 4
    .globl \name
    .type \name, %function
\name:
    .cfi_startproc
    endbr64
    .endm

    .macro LIBC name
    BEGIN forkless_libc_\name
    .hidden forkless_libc_\name
    jmp \name@PLT
    END forkless_libc_\name
    .endm

    .macro EARLY name
    BEGIN \name
    cmpb $0, forkless_preload_ready(%rip)
    je forkless_early_\name
    jmp forkless_own_\name
    END \name
    .endm

    .macro ENTRY_OF symbol, own, name, version
    RECORD record_of_\symbol, \own, \name, "\version"
    BEGIN \symbol
    cmpb $0, forkless_preload_ready(%rip)
    je 1f
    jmp \own
1:  leaq record_of_\symbol(%rip), %r11
    jmp prepare
    END \symbol
    .endm

/* Goes where `forkless_preload_prepare` says, with the arguments of the call as they were. */
    .text
    .p2align 4
    .type prepare, %function
prepare:
    .cfi_startproc
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    pushq %rdx
    .cfi_adjust_cfa_offset 8
    pushq %rcx
    .cfi_adjust_cfa_offset 8
    pushq %r8
    .cfi_adjust_cfa_offset 8
    pushq %r9
    .cfi_adjust_cfa_offset 8
    subq $8, %rsp
    .cfi_adjust_cfa_offset 8
    movq %r11, %rdi
    call forkless_preload_prepare
    movq %rax, %r11
    addq $8, %rsp
    .cfi_adjust_cfa_offset -8
    popq %r9
    .cfi_adjust_cfa_offset -8
    popq %r8
    .cfi_adjust_cfa_offset -8
    popq %rcx
    .cfi_adjust_cfa_offset -8
    popq %rdx
    .cfi_adjust_cfa_offset -8
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
    jmp *%r11
    END prepare

#elif defined(__aarch64__)

    .macro BEGIN name
    .text
    .p2align 4
    .globl \name
    .type \name, %function
\name:
    .cfi_startproc
    hint #34 /* bti c */
    .endm

    .macro LIBC name
    BEGIN forkless_libc_\name
    .hidden forkless_libc_\name
    b \name
    END forkless_libc_\name
    .endm

    .macro IF_READY otherwise
    adrp x16, forkless_preload_ready
    ldrb w16, [x16, :lo12:forkless_preload_ready]
    cbz w16, \otherwise
    .endm

    .macro EARLY name
    BEGIN \name
    IF_READY 1f
    b forkless_own_\name
1:  b forkless_early_\name
    END \name
    .endm

    .macro ENTRY_OF symbol, own, name, version
    RECORD record_of_\symbol, \own, \name, "\version"
    BEGIN \symbol
    IF_READY 1f
    b \own
1:  adrp x16, record_of_\symbol
    add x16, x16, :lo12:record_of_\symbol
    b prepare
    END \symbol
    .endm

/* Goes where `forkless_preload_prepare` says, with the arguments of the call as they were. */
    .text
    .p2align 4
    .type prepare, %function
prepare:
    .cfi_startproc
    stp x29, x30, [sp, #-80]!
    .cfi_def_cfa_offset 80
    .cfi_offset x29, -80
    .cfi_offset x30, -72
    mov x29, sp
    stp x0, x1, [sp, #16]
    stp x2, x3, [sp, #32]
    stp x4, x5, [sp, #48]
    stp x6, x7, [sp, #64]
    mov x0, x16
    bl forkless_preload_prepare
    mov x16, x0
    ldp x0, x1, [sp, #16]
    ldp x2, x3, [sp, #32]
    ldp x4, x5, [sp, #48]
    ldp x6, x7, [sp, #64]
    ldp x29, x30, [sp], #80
    .cfi_restore x29
    .cfi_restore x30
    .cfi_def_cfa_offset 0
    br x16
    END prepare

#endif

    .macro ENTRY name, version
    ENTRY_OF \name, forkless_own_\name, \name, "\version"
    .endm

#include "late.list"

/* glibc has two versions of these on x86-64. The old one runs a file without #! with a shell, as execvp(3) does. */
#ifdef __x86_64__
    ENTRY_OF spawn_new, forkless_preload_posix_spawn, posix_spawn, "GLIBC_2.15"
    ENTRY_OF spawnp_new, forkless_preload_posix_spawnp, posix_spawnp, "GLIBC_2.15"
    ENTRY_OF spawn_old, forkless_preload_posix_spawn_old, posix_spawn, "GLIBC_2.2.5"
    ENTRY_OF spawnp_old, forkless_preload_posix_spawnp_old, posix_spawnp, "GLIBC_2.2.5"
    .symver spawn_new, posix_spawn@@GLIBC_2.15
    .symver spawnp_new, posix_spawnp@@GLIBC_2.15
    .symver spawn_old, posix_spawn@GLIBC_2.2.5
    .symver spawnp_old, posix_spawnp@GLIBC_2.2.5
#else
    ENTRY_OF posix_spawn, forkless_preload_posix_spawn, posix_spawn, ""
    ENTRY_OF posix_spawnp, forkless_preload_posix_spawnp, posix_spawnp, ""
#endif

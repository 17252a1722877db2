/* Rust's compiler calls libc's functions through the global offset table, so the loader would look all of them up when the library
 * is loaded. The linker's option --wrap sends these calls here, and from here they go through the procedure linkage table: then
 * the loader looks a function up when it is first called. `calls.list`, which `cargo xtask dist` writes, has a line CALL name for
 * each function. */

    .macro CALL name
    .text
    .p2align 4
    .globl __wrap_\name
    .hidden __wrap_\name
    .type __wrap_\name, %function
__wrap_\name:
    .cfi_startproc
#ifdef __x86_64__
    endbr64
    jmp __real_\name@PLT
#else
    hint #34 /* bti c */
    b __real_\name
#endif
    .cfi_endproc
    .size __wrap_\name, . - __wrap_\name
    .endm

#include "calls.list"

    .section .note.GNU-stack, "", %progbits

//! PID 1 of a sandbox, or the parent of a program that ends with all that it has started. It is machine code of 2 KiB that
//! needs nothing but the kernel.
//!
//! A sandbox has a PID namespace, whose first process must reap all others, and only gets signals that it handles. So the
//! program is not the first process but the second one. Init is executed by the plan of the launch, and executes the program.
//! It is not written in Rust, because nothing must be linked to it and no compiler may put calls into it.
//!
//! # Arguments
//! `argv[0]` a name; `argv[1]` the [`word`]; then the paths to try in their order; an empty string; the arguments of the
//! program. The environment is that of the program.
//!
//! # What it does
//! 1. The socket becomes close-on-exec, and init non-dumpable: no program can trace it or open its memory.
//! 2. All signals are blocked. A vfork child gets the former mask back, leads a session if requested, and executes the program:
//!    the rules for the paths are those of [`exec`](crate::exec).
//! 3. It sends [`Started`] over the socket, and ends with code 127 if the program was not executed.
//! 4. All descriptors but the socket are closed. It waits until
//!    - the program has ended: its wait status is sent as 4 bytes. Init ends when no other child is left, at the latest
//!      after the time in the word, and with it all processes of the sandbox
//!    - another child has ended, and is reaped
//!    - a process outside sends a signal, which goes to the process group of the program. SIGTSTP and the like become SIGSTOP:
//!      the kernel discards them in a session without a terminal. When the program has ended, one that ends programs ends init
//!    - the process that has made the socket has ended (SO_PEERPIDFD, Linux 6.5), or no process holds the other end.
//! 5. Where there is no PID namespace ([`KILLS_TREE`]), it kills what is left, and reaps it. If no process holds the other
//!    end before the program is executed, it starts nothing.

#[cfg(not(miri))]
use crate::sys::{errno::*, uapi::*};

/// What init sends first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Started {
    /// Why the program was not executed; 0: it was.
    pub errno: i32,
    /// The index of the path that this is about, [`NO_CHILD`], [`NO_DOMAIN`] or
    /// [`CANNOT_KILL`].
    pub path: u32,
}

/// In [`Started::path`]: init could not clone a child.
pub const NO_CHILD: u32 = u32::MAX;

/// In [`Started::path`]: init, or its child, could not enter a Landlock domain.
pub const NO_DOMAIN: u32 = u32::MAX - 1;

/// In [`Started::path`]: the program could change the user of its processes, and init could not kill these.
pub const CANNOT_KILL: u32 = u32::MAX - 2;

impl Started {
    /// The length of the message.
    pub const LENGTH: usize = 8;

    /// From the message.
    pub fn of(bytes: [u8; Self::LENGTH]) -> Self {
        let [a, b, c, d, path @ ..] = bytes;
        Self { errno: i32::from_ne_bytes([a, b, c, d]), path: u32::from_ne_bytes(path) }
    }
}

/// The argument that names the socket in three digits of five bits, what else was requested in a fourth, and in four more the
/// milliseconds, less than 2²⁰, that other processes have when the program has ended. It ends with NUL.
pub fn word(socket: i32, requested: u8, linger: u32) -> [u8; 9] {
    let digit = |number: u32, shift: u32| DIGIT + (number >> shift & 31) as u8;
    let (socket, linger) = (socket as u32, linger.min(MOST_LINGER));
    let [a, b, c] = [10, 5, 0].map(|shift| digit(socket, shift));
    let [d, e, f, g] = [15, 10, 5, 0].map(|shift| digit(linger, shift));
    [a, b, c, DIGIT + requested, d, e, f, g, 0]
}

/// The maximum number of milliseconds that the word can hold.
const MOST_LINGER: u32 = (1 << 20) - 1;

/// The digit 0.
const DIGIT: u8 = b'A';

/// In the word: the program leads a session.
pub const LEADS: u8 = 1;

/// In the word: the next path is tried after any failure, as with [`TRY_ALL`](crate::plan::TRY_ALL).
pub const TRIES_ALL: u8 = 2;

/// In the word: `/bin/sh` runs a text without a known format (ENOEXEC).
pub const BY_SHELL: u8 = 4;

/// In the word: there is no PID namespace. Init enters a Landlock domain from which no signal goes outside, and the program
/// another one inside it, so that the program cannot signal init. When init ends, for whatever reason, it first kills all
/// that it may: every process of its domain, in one system call. No process can leave a domain. Init kills nothing unless
/// the child has seen that the domain is in force: that the kernel refuses a signal from the program's domain to init,
/// which has the same user. With CAP_SETUID, but without CAP_KILL, nothing is started.
pub const KILLS_TREE: u8 = 8;

/// How often init checks for processes that it has killed, and the nanoseconds between (on aarch64 a constant of one
/// instruction).
#[cfg(not(miri))]
const LOOKS: u32 = 50_000;
#[cfg(not(miri))]
const PAUSE: u32 = 3 << 16;

/// LANDLOCK_SCOPE_SIGNAL, Linux 6.12.
#[cfg(not(miri))]
const SCOPE_SIGNAL: u32 = 2;

/// Defines [`code`] by its instructions.
macro_rules! code {
    ($($line:literal,)*) => {
        /// The code, which runs at any address. Its entry is its first byte.
        pub fn code() -> &'static [u8] {
            let (start, end): (usize, usize);
            // SAFETY: takes two addresses, and jumps over what is between them. That is never run here.
            unsafe {
                core::arch::asm!(
                    $($line,)*
                    start = out(reg) start, end = out(reg) end,
                    kills = const KILLS_TREE, looks = const LOOKS, pause = const PAUSE, scope_signal = const SCOPE_SIGNAL, eopnotsupp = const EOPNOTSUPP, einval = const EINVAL,
                    eperm = const EPERM, capget = const __NR_capget,
                    getppid = const __NR_getppid, getpid = const __NR_getpid, close = const __NR_close,
                    landlock_create = const __NR_landlock_create_ruleset, landlock_restrict = const __NR_landlock_restrict_self,
                    digit = const DIGIT, leads = const LEADS, tries_all = const TRIES_ALL, by_shell = const BY_SHELL, f_setfd = const F_SETFD,
                    fcntl = const __NR_fcntl, prctl = const __NR_prctl, sigprocmask = const __NR_rt_sigprocmask, sigaction = const __NR_rt_sigaction, clone = const __NR_clone,
                    setsid = const __NR_setsid, execve = const __NR_execve, nanosleep = const __NR_nanosleep, exit = const __NR_exit,
                    write = const __NR_write, close_range = const __NR_close_range, getsockopt = const __NR_getsockopt,
                    signalfd4 = const __NR_signalfd4, ppoll = const __NR_ppoll, read = const __NR_read, kill = const __NR_kill,
                    wait4 = const __NR_wait4, exit_group = const __NR_exit_group,
                    enoent = const ENOENT, enotdir = const ENOTDIR, enodev = const ENODEV, estale = const ESTALE,
                    etimedout = const ETIMEDOUT, enoexec = const ENOEXEC, openat = const __NR_openat, eacces = const EACCES, etxtbsy = const ETXTBSY,
                    options(nomem, nostack, preserves_flags),
                );
                core::slice::from_raw_parts(start as *const u8, end - start)
            }
        }
    };
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
code! {
    "lea {start}, [rip + 2f]", "lea {end}, [rip + 3f]", "jmp 3f",
    ".balign 8",
    "2:",
    // rsp+0 mask before, +8 all signals, +16 Started, +24 status, +28 that of the program, +32 numbers and times,
    // +48 whether the domain is in force, +64 three pollfds, +96 the time to linger, +128 signal
    "mov rbx, rsp", "sub rsp, 512", "and rsp, -16",
    "mov rax, [rbx + 16]",
    "xor r14d, r14d",
    "movzx ecx, byte ptr [rax]", "sub ecx, {digit}", "shl ecx, 10", "or r14d, ecx",
    "movzx ecx, byte ptr [rax + 1]", "sub ecx, {digit}", "shl ecx, 5", "or r14d, ecx",
    "movzx ecx, byte ptr [rax + 2]", "sub ecx, {digit}", "or r14d, ecx",
    "movzx ebp, byte ptr [rax + 3]", "sub ebp, {digit}",
    "movzx edx, byte ptr [rax + 4]", "sub edx, {digit}",
    "movzx ecx, byte ptr [rax + 5]", "sub ecx, {digit}", "shl edx, 5", "or edx, ecx",
    "movzx ecx, byte ptr [rax + 6]", "sub ecx, {digit}", "shl edx, 5", "or edx, ecx",
    "movzx ecx, byte ptr [rax + 7]", "sub ecx, {digit}", "shl edx, 5", "or edx, ecx",
    "mov eax, edx", "xor edx, edx", "mov ecx, 1000", "div ecx", "mov [rsp + 96], rax",
    "imul edx, edx, 1000000", "mov [rsp + 104], rdx",
    // r15: the paths, later the PID of the program, or 0 when it has ended; r12: the program's arguments; r13: its
    // environment; r14: the socket
    "lea r15, [rbx + 24]", "mov r12, r15",
    "4:", "mov rax, [r12]", "add r12, 8", "cmp byte ptr [rax], 0", "jne 4b",
    "mov rax, [rbx]", "lea r13, [rbx + rax * 8 + 16]",
    "mov edi, r14d", "mov esi, {f_setfd}", "mov edx, 1", "mov eax, {fcntl}", "syscall",
    "mov edi, 4", "xor esi, esi", "xor edx, edx", "xor r10d, r10d", "xor r8d, r8d", "mov eax, {prctl}", "syscall",
    "mov qword ptr [rsp + 8], -1", "mov qword ptr [rsp + 16], 0", "mov dword ptr [rsp + 48], 0",
    "mov edi, 2", "lea rsi, [rsp + 8]", "mov rdx, rsp", "mov r10d, 8", "mov eax, {sigprocmask}", "syscall",
    // SIGCHLD may be ignored: then the program's status would be lost. +256 the default, +288 the action before
    "xor eax, eax", "mov [rsp + 256], rax", "mov [rsp + 264], rax", "mov [rsp + 272], rax", "mov [rsp + 280], rax",
    "mov edi, 17", "lea rsi, [rsp + 256]", "lea rdx, [rsp + 288]", "mov r10d, 8", "mov eax, {sigaction}", "syscall",
    "test ebp, {kills}", "jz 42f",
    // PR_SET_CHILD_SUBREAPER
    "mov edi, 36", "mov esi, 1", "xor edx, edx", "xor r10d, r10d", "xor r8d, r8d", "mov eax, {prctl}", "syscall",
    // _LINUX_CAPABILITY_VERSION_3, and the permitted set: CAP_SETUID without CAP_KILL
    "mov dword ptr [rsp + 128], 0x20080522", "mov dword ptr [rsp + 132], 0", "lea rdi, [rsp + 128]", "lea rsi, [rsp + 136]",
    "mov eax, {capget}", "syscall", "mov dword ptr [rsp + 20], -3", "test eax, eax", "js 53f",
    "mov ecx, [rsp + 140]", "and ecx, 0xa0", "mov eax, -{eperm}", "cmp ecx, 0x80", "je 53f",
    "mov dword ptr [rsp + 20], -2", "call 40f", "test eax, eax", "jns 52f",
    "53:", "neg eax", "mov [rsp + 16], eax", "jmp 7f",
    // no process holds the other end any more: nothing is started
    "52:", "mov [rsp + 64], r14d", "mov dword ptr [rsp + 68], 0", "mov qword ptr [rsp + 32], 0", "mov qword ptr [rsp + 40], 0",
    "lea rdi, [rsp + 64]", "mov esi, 1", "lea rdx, [rsp + 32]", "xor r10d, r10d", "xor r8d, r8d", "mov eax, {ppoll}", "syscall",
    "mov ebx, 137", "test eax, eax", "jg 47f",
    // CLONE_VM, CLONE_VFORK, SIGCHLD. The child makes calls only, so it may have the same stack.
    "42:", "mov edi, 0x4111", "xor esi, esi", "xor edx, edx", "xor r10d, r10d", "xor r8d, r8d", "mov eax, {clone}", "syscall",
    "test eax, eax", "jz 5f", "js 6f",
    "mov r15d, eax", "jmp 7f",
    "6:", "neg eax", "mov [rsp + 16], eax", "mov dword ptr [rsp + 20], -1", "jmp 7f",
    // the child. r8d: the errno so far, r10d: its path, bit 7 of ebp: it is more than absence. Only an error is stored, because
    // init reads it after a success, too.
    "5:", "mov edi, 2", "mov rsi, rsp", "xor edx, edx", "mov r10d, 8", "mov eax, {sigprocmask}", "syscall",
    "mov edi, 17", "lea rsi, [rsp + 288]", "xor edx, edx", "mov r10d, 8", "mov eax, {sigaction}", "syscall",
    "test ebp, {leads}", "jz 8f", "mov eax, {setsid}", "syscall",
    "8:", "test ebp, {kills}", "jz 44f",
    // PR_SET_PDEATHSIG
    "mov edi, 1", "mov esi, 9", "xor edx, edx", "xor r10d, r10d", "xor r8d, r8d", "mov eax, {prctl}", "syscall",
    "call 40f", "test eax, eax", "js 45f",
    // the proof: the kernel refuses a signal to init, which has the same user
    "mov eax, {getppid}", "syscall", "mov edi, eax", "xor esi, esi", "mov eax, {kill}", "syscall",
    "cmp eax, -1", "jne 50f", "mov dword ptr [rsp + 48], 1", "jmp 44f",
    "50:", "mov eax, -{eopnotsupp}",
    "45:", "neg eax", "mov r8d, eax", "mov r10d, -2", "jmp 23f",
    "44:", "xor ebx, ebx", "xor r8d, r8d", "xor r10d, r10d", "mov r9d, 100",
    "9:", "mov rdi, [r15 + rbx * 8]", "cmp byte ptr [rdi], 0", "je 22f",
    "mov rsi, r12", "mov rdx, r13", "mov eax, {execve}", "syscall",
    "neg eax", "cmp eax, {etxtbsy}", "jne 12f", "sub r9d, 1", "js 12f",
    "mov qword ptr [rsp + 32], 0", "mov qword ptr [rsp + 40], 1000000",
    "lea rdi, [rsp + 32]", "xor esi, esi", "mov eax, {nanosleep}", "syscall", "jmp 9b",
    "12:", "cmp eax, {enoexec}", "jne 34f", "test ebp, {by_shell}", "jz 34f",
    // A NUL byte in the beginning of the first line: no text. One that cannot be read may be text.
    "mov edi, -100", "mov rsi, [r15 + rbx * 8]", "mov edx, 0x80000", "xor r10d, r10d", "mov eax, {openat}", "syscall",
    "test eax, eax", "js 36f",
    "mov edi, eax", "lea rsi, [rsp + 128]", "mov edx, 80", "mov eax, {read}", "syscall",
    "lea rsi, [rsp + 128]", "test eax, eax", "jle 36f",
    "35:", "cmp byte ptr [rsi], 10", "je 36f", "cmp byte ptr [rsi], 0", "je 37f", "inc rsi", "dec eax", "jnz 35b",
    // The shell takes the place of the empty string, and the path that of the program's name.
    "36:", "mov rax, [r15 + rbx * 8]", "mov [r12], rax", "lea rdi, [rip + 38f]", "lea rsi, [r12 - 8]", "mov [rsi], rdi",
    "mov rdx, r13", "mov eax, {execve}", "syscall",
    "37:", "mov r8d, {enoexec}", "mov r10d, ebx", "jmp 23f",
    "34:", "cmp eax, {enoent}", "je 13f", "cmp eax, {enotdir}", "je 13f", "cmp eax, {enodev}", "je 13f",
    "cmp eax, {estale}", "je 13f", "cmp eax, {etimedout}", "je 13f",
    "cmp eax, {eacces}", "je 24f", "test ebp, {tries_all}", "jnz 24f", "mov r8d, eax", "mov r10d, ebx", "jmp 23f",
    // the search goes on; the first failure that is more than absence is the better reason
    "24:", "bts ebp, 7", "jc 14f", "jmp 25f",
    "13:", "bt ebp, 7", "jc 14f",
    "25:", "mov r8d, eax", "mov r10d, ebx",
    "14:", "inc ebx", "jmp 9b",
    "22:", "test r8d, r8d", "jne 23f", "mov r8d, {enoent}",
    "23:", "mov [rsp + 16], r8d", "mov [rsp + 20], r10d", "mov edi, 127", "mov eax, {exit}", "syscall", "ud2",
    // init
    "7:", "mov edi, r14d", "lea rsi, [rsp + 16]", "mov edx, 8", "mov eax, {write}", "syscall",
    "mov edi, 127", "cmp dword ptr [rsp + 16], 0", "jne 30f",
    "xor edi, edi", "lea esi, [r14 - 1]", "xor edx, edx", "mov eax, {close_range}", "syscall",
    "lea edi, [r14 + 1]", "mov esi, -1", "xor edx, edx", "mov eax, {close_range}", "syscall",
    // SOL_SOCKET, SO_PEERPIDFD
    "mov dword ptr [rsp + 36], 4", "mov edi, r14d", "mov esi, 1", "mov edx, 77", "lea r10, [rsp + 32]",
    "lea r8, [rsp + 36]", "mov eax, {getsockopt}", "syscall",
    "test eax, eax", "jns 15f", "mov dword ptr [rsp + 32], -1",
    "15:", "mov edi, -1", "lea rsi, [rsp + 8]", "mov edx, 8", "mov r10d, 0x80000", "mov eax, {signalfd4}", "syscall",
    "test eax, eax", "js 29f",
    "mov [rsp + 64], eax", "mov dword ptr [rsp + 68], 1",
    "mov [rsp + 72], r14d", "mov dword ptr [rsp + 76], 0",
    "mov eax, [rsp + 32]", "mov [rsp + 80], eax", "mov dword ptr [rsp + 84], 1",
    // The kernel writes the time that is left to +96.
    "16:", "lea rdi, [rsp + 64]", "mov esi, 3", "xor edx, edx", "test r15d, r15d", "jnz 26f", "lea rdx, [rsp + 96]",
    "26:", "xor r10d, r10d", "xor r8d, r8d", "mov eax, {ppoll}", "syscall",
    "cmp eax, -4", "je 16b", "test eax, eax", "jg 27f", "test r15d, r15d", "jz 31f", "jmp 29f", "27:",
    "mov edi, 137", "cmp word ptr [rsp + 78], 0", "jne 30f", "cmp word ptr [rsp + 86], 0", "jne 30f",
    "mov edi, [rsp + 64]", "lea rsi, [rsp + 128]", "mov edx, 128", "mov eax, {read}", "syscall",
    "cmp eax, 128", "je 20f", "test r15d, r15d", "jz 31f", "jmp 29f", "20:",
    "mov eax, [rsp + 128]", "cmp eax, 17", "je 18f",
    // only those that processes outside have sent are forwarded: ssi_code, ssi_pid
    "cmp dword ptr [rsp + 136], 0", "jg 16b", "test ebp, {kills}", "jnz 43f", "cmp dword ptr [rsp + 140], 0", "jne 16b", "43:",
    // After the end of the program: the signals that end no program by default are SIGCONT to SIGURG and SIGWINCH.
    "test r15d, r15d", "jnz 21f", "lea ecx, [rax - 18]", "cmp ecx, 5", "jbe 16b", "cmp eax, 28", "je 16b", "jmp 31f", "21:",
    "mov esi, eax", "lea ecx, [rax - 20]", "cmp ecx, 2", "ja 17f", "mov esi, 19",
    "17:", "mov edi, r15d", "neg edi", "mov eax, {kill}", "syscall", "test eax, eax", "jns 16b",
    "mov edi, r15d", "mov eax, {kill}", "syscall", "jmp 16b",
    "18:", "mov edi, -1", "lea rsi, [rsp + 24]", "mov edx, 1", "xor r10d, r10d", "mov eax, {wait4}", "syscall",
    "test eax, eax", "jz 16b", "js 33f", "cmp eax, r15d", "jne 18b",
    "mov eax, [rsp + 24]", "mov [rsp + 28], eax", "xor r15d, r15d",
    "mov edi, r14d", "lea rsi, [rsp + 28]", "mov edx, 4", "mov eax, {write}", "syscall",
    // SA_NOCLDWAIT: from now on the kernel reaps, so that a stream of ended children does not keep init from its timeout
    "mov dword ptr [rsp + 264], 2", "mov edi, 17", "lea rsi, [rsp + 256]", "xor edx, edx", "mov r10d, 8",
    "mov eax, {sigaction}", "syscall", "jmp 18b",
    // no children
    "33:", "test r15d, r15d", "jnz 16b",
    "31:", "mov eax, [rsp + 28]", "mov edi, eax", "and edi, 0x7f", "jz 19f", "add edi, 128", "jmp 30f",
    "19:", "shr eax, 8", "movzx edi, al",
    // ebx: the code, r12d: how often to look
    "30:", "cmp dword ptr [rsp + 48], 0", "je 49f", "mov ebx, edi", "mov r12d, {looks}",
    "46:", "mov edi, -1", "xor esi, esi", "mov edx, 1", "xor r10d, r10d", "mov eax, {wait4}", "syscall",
    "test eax, eax", "js 47f", "jnz 46b",
    // all processes that Landlock lets init signal: those of its domain
    "mov edi, -1", "mov esi, 9", "mov eax, {kill}", "syscall",
    "mov qword ptr [rsp + 32], 0", "mov qword ptr [rsp + 40], {pause}",
    "lea rdi, [rsp + 32]", "xor esi, esi", "mov eax, {nanosleep}", "syscall", "dec r12d", "jnz 46b",
    "47:", "cmp ebx, 137", "jne 48f",
    "mov eax, {getpid}", "syscall", "mov edi, eax", "mov esi, 9", "mov eax, {kill}", "syscall",
    "48:", "mov edi, ebx",
    "49:", "mov eax, {exit_group}", "syscall", "ud2",
    // enters a Landlock domain that sends no signals outside. eax: 0, or the negative errno
    "40:", "mov qword ptr [rsp + 136], 0", "mov qword ptr [rsp + 144], 0", "mov qword ptr [rsp + 152], {scope_signal}",
    "lea rdi, [rsp + 136]", "mov esi, 24", "xor edx, edx", "mov eax, {landlock_create}", "syscall",
    "test eax, eax", "js 41f",
    // LANDLOCK_RESTRICT_SELF_LOG_SAME_EXEC_OFF, Linux 6.15: the refused signals are not for the audit log
    "mov ebx, eax", "mov edi, eax", "mov esi, 1", "mov eax, {landlock_restrict}", "syscall",
    "cmp eax, -{einval}", "jne 51f", "mov edi, ebx", "xor esi, esi", "mov eax, {landlock_restrict}", "syscall",
    "51:", "mov r8d, eax", "mov edi, ebx", "mov eax, {close}", "syscall", "mov eax, r8d",
    "41:", "ret",
    // a filter refuses one of the calls: only waits for children
    "29:", "mov edi, 137", "test ebp, {kills}", "jnz 30b",
    "mov edi, -1", "lea rsi, [rsp + 24]", "xor edx, edx", "xor r10d, r10d", "mov eax, {wait4}", "syscall",
    "cmp eax, r15d", "jne 32f", "mov eax, [rsp + 24]", "mov [rsp + 28], eax",
    "mov edi, r14d", "lea rsi, [rsp + 28]", "mov edx, 4", "mov eax, {write}", "syscall", "jmp 31b",
    "32:", "test eax, eax", "jg 29b", "mov edi, 137", "jmp 49b",
    "38:", ".asciz \"/bin/sh\"",
    "3:",
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
code! {
    "adr {start}, 2f", "adr {end}, 3f", "b 3f",
    "2:",
    // sp+0 mask before, +8 all signals, +16 Started, +24 status, +28 that of the program, +32 numbers and times,
    // +48 whether the domain is in force, +64 three pollfds, +96 the time to linger, +128 signal
    "mov x26, sp", "sub sp, sp, #512",
    "ldr x9, [x26, #16]",
    "ldrb w10, [x9]", "sub w10, w10, #{digit}", "lsl w21, w10, #10",
    "ldrb w10, [x9, #1]", "sub w10, w10, #{digit}", "orr w21, w21, w10, lsl #5",
    "ldrb w10, [x9, #2]", "sub w10, w10, #{digit}", "orr w21, w21, w10",
    "ldrb w24, [x9, #3]", "sub w24, w24, #{digit}",
    "ldrb w10, [x9, #4]", "sub w10, w10, #{digit}",
    "ldrb w11, [x9, #5]", "sub w11, w11, #{digit}", "orr w10, w11, w10, lsl #5",
    "ldrb w11, [x9, #6]", "sub w11, w11, #{digit}", "orr w10, w11, w10, lsl #5",
    "ldrb w11, [x9, #7]", "sub w11, w11, #{digit}", "orr w10, w11, w10, lsl #5",
    "mov w11, #1000", "udiv w12, w10, w11", "msub w10, w12, w11, w10", "str x12, [sp, #96]",
    "mov w11, #0x4240", "movk w11, #0xf, lsl #16", "mul w10, w10, w11", "str x10, [sp, #104]",
    // x22: the paths; x19: the program's arguments; x20: its environment; w21: the socket; later w23: the PID of the
    // program, or 0 when it has ended
    "add x22, x26, #24", "mov x19, x22",
    "4:", "ldr x9, [x19], #8", "ldrb w9, [x9]", "cbnz w9, 4b",
    "ldr x9, [x26]", "add x20, x26, x9, lsl #3", "add x20, x20, #16",
    "mov w0, w21", "mov x1, #{f_setfd}", "mov x2, #1", "mov x8, #{fcntl}", "svc 0",
    "mov x0, #4", "mov x1, xzr", "mov x2, xzr", "mov x3, xzr", "mov x4, xzr", "mov x8, #{prctl}", "svc 0",
    "mov x9, #-1", "str x9, [sp, #8]", "str xzr, [sp, #16]", "str wzr, [sp, #48]",
    "mov x0, #2", "add x1, sp, #8", "mov x2, sp", "mov x3, #8", "mov x8, #{sigprocmask}", "svc 0",
    // SIGCHLD may be ignored: then the program's status would be lost. +256 the default, +288 the action before
    "stp xzr, xzr, [sp, #256]", "stp xzr, xzr, [sp, #272]",
    "mov x0, #17", "add x1, sp, #256", "add x2, sp, #288", "mov x3, #8", "mov x8, #{sigaction}", "svc 0",
    "tst w24, #{kills}", "b.eq 42f",
    // PR_SET_CHILD_SUBREAPER
    "mov x0, #36", "mov x1, #1", "mov x2, xzr", "mov x3, xzr", "mov x4, xzr", "mov x8, #{prctl}", "svc 0",
    // _LINUX_CAPABILITY_VERSION_3, and the permitted set: CAP_SETUID without CAP_KILL
    "mov w9, #0x522", "movk w9, #0x2008, lsl #16", "stp w9, wzr, [sp, #128]", "add x0, sp, #128", "add x1, sp, #136",
    "mov x8, #{capget}", "svc 0", "mov w9, #-3", "str w9, [sp, #20]", "tbnz w0, #31, 53f",
    "mov w0, #-{eperm}", "ldr w9, [sp, #140]", "tbnz w9, #5, 54f", "tbnz w9, #7, 53f",
    "54:", "mov w9, #-2", "str w9, [sp, #20]", "bl 40f", "tbz w0, #31, 52f",
    "53:", "neg w0, w0", "str w0, [sp, #16]", "b 7f",
    // no process holds the other end any more: nothing is started
    "52:", "str w21, [sp, #64]", "str wzr, [sp, #68]", "stp xzr, xzr, [sp, #32]",
    "add x0, sp, #64", "mov x1, #1", "add x2, sp, #32", "mov x3, xzr", "mov x4, xzr", "mov x8, #{ppoll}", "svc 0",
    "mov w28, #137", "cmp w0, #0", "b.gt 47f",
    // CLONE_VM, CLONE_VFORK, SIGCHLD. The child makes calls only, so it may have the same stack.
    "42:", "mov x0, #0x4111", "mov x1, xzr", "mov x2, xzr", "mov x3, xzr", "mov x4, xzr", "mov x8, #{clone}", "svc 0",
    "cbz w0, 5f", "tbnz w0, #31, 6f",
    "mov w23, w0", "b 7f",
    "6:", "neg w0, w0", "str w0, [sp, #16]", "mov w9, #-1", "str w9, [sp, #20]", "b 7f",
    // the child. w11: the errno so far, w12: its path, bit 7 of w24: it is more than absence. Only an error is stored, because
    // init reads it after a success, too.
    "5:", "mov x0, #2", "mov x1, sp", "mov x2, xzr", "mov x3, #8", "mov x8, #{sigprocmask}", "svc 0",
    "mov x0, #17", "add x1, sp, #288", "mov x2, xzr", "mov x3, #8", "mov x8, #{sigaction}", "svc 0",
    "tst w24, #{leads}", "b.eq 8f", "mov x8, #{setsid}", "svc 0",
    "8:", "tst w24, #{kills}", "b.eq 44f",
    // PR_SET_PDEATHSIG
    "mov x0, #1", "mov x1, #9", "mov x2, xzr", "mov x3, xzr", "mov x4, xzr", "mov x8, #{prctl}", "svc 0",
    "bl 40f", "tbnz w0, #31, 45f",
    // the proof: the kernel refuses a signal to init, which has the same user
    "mov x8, #{getppid}", "svc 0", "mov x1, xzr", "mov x8, #{kill}", "svc 0",
    "cmn w0, #1", "b.ne 50f", "mov w9, #1", "str w9, [sp, #48]", "b 44f",
    "50:", "mov w0, #-{eopnotsupp}",
    "45:", "neg w11, w0", "mov w12, #-2", "b 23f",
    "44:", "mov w25, wzr", "mov w11, wzr", "mov w12, wzr", "mov w27, #100",
    "9:", "ldr x0, [x22, w25, uxtw #3]", "ldrb w9, [x0]", "cbz w9, 22f",
    "mov x1, x19", "mov x2, x20", "mov x8, #{execve}", "svc 0",
    "neg w0, w0", "cmp w0, #{etxtbsy}", "b.ne 12f", "subs w27, w27, #1", "b.mi 12f",
    "str xzr, [sp, #32]", "mov w9, #0x4240", "movk w9, #0xf, lsl #16", "str x9, [sp, #40]",
    "add x0, sp, #32", "mov x1, xzr", "mov x8, #{nanosleep}", "svc 0", "b 9b",
    "12:", "cmp w0, #{enoexec}", "b.ne 34f", "tst w24, #{by_shell}", "b.eq 34f",
    // A NUL byte in the beginning of the first line: no text. One that cannot be read may be text.
    "mov x0, #-100", "ldr x1, [x22, w25, uxtw #3]", "mov x2, #0x80000", "mov x3, xzr", "mov x8, #{openat}", "svc 0",
    "tbnz w0, #31, 36f",
    "add x1, sp, #128", "mov x2, #80", "mov x8, #{read}", "svc 0",
    "add x1, sp, #128", "cmp w0, #0", "b.le 36f",
    "35:", "ldrb w9, [x1], #1", "cmp w9, #10", "b.eq 36f", "cbz w9, 37f", "subs w0, w0, #1", "b.ne 35b",
    // The shell takes the place of the empty string, and the path that of the program's name.
    "36:", "ldr x9, [x22, w25, uxtw #3]", "str x9, [x19]", "adr x0, 38f", "sub x1, x19, #8", "str x0, [x1]",
    "mov x2, x20", "mov x8, #{execve}", "svc 0",
    "37:", "mov w11, #{enoexec}", "mov w12, w25", "b 23f",
    "34:", "cmp w0, #{enoent}", "b.eq 13f", "cmp w0, #{enotdir}", "b.eq 13f", "cmp w0, #{enodev}", "b.eq 13f",
    "cmp w0, #{estale}", "b.eq 13f", "cmp w0, #{etimedout}", "b.eq 13f",
    "cmp w0, #{eacces}", "b.eq 24f", "tst w24, #{tries_all}", "b.ne 24f", "mov w11, w0", "mov w12, w25", "b 23f",
    // the search goes on; the first failure that is more than absence is the better reason
    "24:", "tbnz w24, #7, 14f", "orr w24, w24, #128", "b 25f",
    "13:", "tbnz w24, #7, 14f",
    "25:", "mov w11, w0", "mov w12, w25",
    "14:", "add w25, w25, #1", "b 9b",
    "22:", "cbnz w11, 23f", "mov w11, #{enoent}",
    "23:", "str w11, [sp, #16]", "str w12, [sp, #20]", "mov x0, #127", "mov x8, #{exit}", "svc 0", "udf #0",
    // init
    "7:", "mov w0, w21", "add x1, sp, #16", "mov x2, #8", "mov x8, #{write}", "svc 0",
    "mov w28, #127", "ldr w9, [sp, #16]", "cbnz w9, 30f",
    "mov x0, xzr", "sub w1, w21, #1", "mov x2, xzr", "mov x8, #{close_range}", "svc 0",
    "add w0, w21, #1", "mov w1, #-1", "mov x2, xzr", "mov x8, #{close_range}", "svc 0",
    // SOL_SOCKET, SO_PEERPIDFD
    "mov w9, #4", "str w9, [sp, #36]", "mov w0, w21", "mov x1, #1", "mov x2, #77", "add x3, sp, #32",
    "add x4, sp, #36", "mov x8, #{getsockopt}", "svc 0",
    "tbz w0, #31, 15f", "mov w9, #-1", "str w9, [sp, #32]",
    "15:", "mov w0, #-1", "add x1, sp, #8", "mov x2, #8", "mov x3, #0x80000", "mov x8, #{signalfd4}", "svc 0",
    "tbnz w0, #31, 29f", "mov w9, #1", "str w0, [sp, #64]", "str w9, [sp, #68]",
    "str w21, [sp, #72]", "str wzr, [sp, #76]",
    "ldr w10, [sp, #32]", "str w10, [sp, #80]", "str w9, [sp, #84]",
    // The kernel writes the time that is left to +96.
    "16:", "add x0, sp, #64", "mov x1, #3", "mov x2, xzr", "cbnz w23, 26f", "add x2, sp, #96",
    "26:", "mov x3, xzr", "mov x4, xzr", "mov x8, #{ppoll}", "svc 0",
    "cmn w0, #4", "b.eq 16b", "cmp w0, #0", "b.gt 27f", "cbz w23, 31f", "b 29f", "27:",
    "mov w28, #137", "ldrh w9, [sp, #78]", "cbnz w9, 30f", "ldrh w9, [sp, #86]", "cbnz w9, 30f",
    "ldr w0, [sp, #64]", "add x1, sp, #128", "mov x2, #128", "mov x8, #{read}", "svc 0",
    "cmp w0, #128", "b.eq 20f", "cbz w23, 31f", "b 29f", "20:",
    "ldr w1, [sp, #128]", "cmp w1, #17", "b.eq 18f",
    // only those that processes outside have sent are forwarded: ssi_code, ssi_pid
    "ldr w9, [sp, #136]", "cmp w9, #0", "b.gt 16b", "tst w24, #{kills}", "b.ne 43f", "ldr w9, [sp, #140]", "cbnz w9, 16b", "43:",
    // After the end of the program: the signals that end no program by default are SIGCONT to SIGURG and SIGWINCH.
    "cbnz w23, 21f", "sub w9, w1, #18", "cmp w9, #5", "b.ls 16b", "cmp w1, #28", "b.eq 16b", "b 31f", "21:",
    "sub w9, w1, #20", "cmp w9, #2", "b.hi 17f", "mov w1, #19",
    "17:", "mov w25, w1", "neg w0, w23", "mov x8, #{kill}", "svc 0", "tbz w0, #31, 16b",
    "mov w0, w23", "mov w1, w25", "mov x8, #{kill}", "svc 0", "b 16b",
    "18:", "mov w0, #-1", "add x1, sp, #24", "mov x2, #1", "mov x3, xzr", "mov x8, #{wait4}", "svc 0",
    "cmp w0, #0", "b.eq 16b", "b.lt 33f", "cmp w0, w23", "b.ne 18b",
    "ldr w9, [sp, #24]", "str w9, [sp, #28]", "mov w23, wzr",
    "mov w0, w21", "add x1, sp, #28", "mov x2, #4", "mov x8, #{write}", "svc 0",
    // SA_NOCLDWAIT: from now on the kernel reaps, so that a stream of ended children does not keep init from its timeout
    "mov x9, #2", "str x9, [sp, #264]", "mov x0, #17", "add x1, sp, #256", "mov x2, xzr", "mov x3, #8",
    "mov x8, #{sigaction}", "svc 0", "b 18b",
    // no children
    "33:", "cbnz w23, 16b",
    "31:", "ldr w9, [sp, #28]", "ands w28, w9, #0x7f", "b.eq 19f", "add w28, w28, #128", "b 30f",
    "19:", "ubfx w28, w9, #8, #8",
    // w28: the code, w25: how often to look
    "30:", "ldr w9, [sp, #48]", "cbz w9, 49f", "mov w25, #{looks}",
    "46:", "mov x0, #-1", "mov x1, xzr", "mov x2, #1", "mov x3, xzr", "mov x8, #{wait4}", "svc 0",
    "cmp w0, #0", "b.lt 47f", "b.ne 46b",
    // all processes that Landlock lets init signal: those of its domain
    "mov x0, #-1", "mov x1, #9", "mov x8, #{kill}", "svc 0",
    "str xzr, [sp, #32]", "mov w9, #{pause}", "str x9, [sp, #40]",
    "add x0, sp, #32", "mov x1, xzr", "mov x8, #{nanosleep}", "svc 0", "subs w25, w25, #1", "b.ne 46b",
    "47:", "cmp w28, #137", "b.ne 49f",
    "mov x8, #{getpid}", "svc 0", "mov x1, #9", "mov x8, #{kill}", "svc 0",
    "49:", "mov w0, w28", "mov x8, #{exit_group}", "svc 0", "udf #0",
    // enters a Landlock domain that sends no signals outside. w0: 0, or the negative errno
    "40:", "stp xzr, xzr, [sp, #128]", "mov x9, #{scope_signal}", "str x9, [sp, #144]",
    "add x0, sp, #128", "mov x1, #24", "mov x2, xzr", "mov x8, #{landlock_create}", "svc 0",
    "tbnz w0, #31, 41f",
    // LANDLOCK_RESTRICT_SELF_LOG_SAME_EXEC_OFF, Linux 6.15: the refused signals are not for the audit log
    "mov w25, w0", "mov x1, #1", "mov x8, #{landlock_restrict}", "svc 0",
    "cmn w0, #{einval}", "b.ne 51f", "mov w0, w25", "mov x1, xzr", "mov x8, #{landlock_restrict}", "svc 0",
    "51:", "mov w27, w0", "mov w0, w25", "mov x8, #{close}", "svc 0", "mov w0, w27",
    "41:", "ret",
    // a filter refuses one of the calls: only waits for children
    "29:", "mov w28, #137", "tst w24, #{kills}", "b.ne 30b",
    "mov w0, #-1", "add x1, sp, #24", "mov x2, xzr", "mov x3, xzr", "mov x8, #{wait4}", "svc 0",
    "cmp w0, w23", "b.ne 32f", "ldr w9, [sp, #24]", "str w9, [sp, #28]",
    "mov w0, w21", "add x1, sp, #28", "mov x2, #4", "mov x8, #{write}", "svc 0", "b 31b",
    "32:", "cmp w0, #0", "b.gt 29b", "mov w28, #137", "b 49b",
    "38:", ".asciz \"/bin/sh\"",
    "3:",
}

//! The Plan: the child's steps, as flat data.
//!
//! A plan is one block of memory (an *arena*) of 64-bit words: a [`Header`], the [`Op`]s in the order in which they are
//! played, the argument and environment vectors, lists, and at the end the strings. All references inside are byte
//! offsets from the start, so an arena can be moved, or sent to another process. Only the two vectors that `execve(2)`
//! reads must hold addresses. [`relocate`] converts their offsets once, when the arena is at the place where it will be
//! played. An arena that is played where it was made may refer to an environment elsewhere in that memory.
//!
//! The crate `forkless` compiles arenas; nothing here allocates. A plan is read-only while it is played, so any number
//! of children may play it at the same time. The state of each run is in its [`Frame`](crate::frame::Frame).
//!
//! # Safety
//! The functions here trust the arena: its offsets lie inside it and its strings end in NUL. The compiler that made it
//! guarantees that.

/// First word of an arena: "fkpl".
pub const MAGIC: u32 = 0x6c70_6b66;

/// Incremented when the layout or a meaning changes. A process refuses arenas of another version.
pub const VERSION: u32 = 5;

/// The maximum number of descriptors in a plan.
pub const MAX_FDS: usize = 1024;

/// The start of an arena. All offsets are in bytes from its first byte.
#[repr(C)]
#[derive(Debug)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: u32,
    /// [`VERSION`].
    pub version: u32,
    /// Length of the arena in bytes, a multiple of 8.
    pub len: u64,
    /// Address that the two vectors have been relocated to; 0 while they still hold offsets.
    pub base: u64,
    /// Offset of the first [`Op`].
    pub ops: u32,
    /// The number of ops.
    pub op_count: u32,
    /// Offset of the argument vector, which ends in a zero word.
    pub argv: u32,
    /// Offset of the environment vector, which ends in a zero word. It follows the argument vector directly.
    pub envp: u32,
    /// The number of words in both vectors, including their zero words, and in the vectors for the shell, which follow.
    pub pointer_count: u32,
    /// Offset of the [`Pair`]s, sorted by target.
    pub pairs: u32,
    /// The number of pairs.
    pub pair_count: u32,
    /// Offset of a sorted list of `i32`: the descriptors that the program inherits, including 0 to 2.
    pub keep: u32,
    /// The length of that list.
    pub keep_count: u32,
    /// Padding to a whole number of words.
    pub reserved: u32,
    /// Address of an environment vector outside the arena, whose own one is then empty; 0: none. Such an arena can only
    /// be played in the memory in which it was made.
    pub environment: u64,
}

/// One step of the playback. [`OpCode`] documents the meaning of `a`, `b` and `c`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Op {
    /// The operation.
    pub code: OpCode,
    /// Any of [`ANY_BY_SHELL`], [`BEST_EFFORT`], [`IN_PLACE`], [`NOT_PROCFS`], [`SURELY`] and [`TRY_ALL`].
    pub flags: u32,
    /// First operand.
    pub a: u32,
    /// Second operand.
    pub b: u32,
    /// Third operand.
    pub c: u32,
    /// With [`BEST_EFFORT`]: the number of ops after this one that are skipped too if it fails, because they belong
    /// together.
    pub skip: u32,
    /// A 64-bit operand: a signal set.
    pub set: u64,
}

impl Op {
    /// An op without operands.
    pub const fn new(code: OpCode) -> Self {
        Self { code, flags: 0, a: 0, b: 0, c: 0, skip: 0, set: 0 }
    }
}

/// [`Op::flags`]: a failure is recorded, and the launch continues.
pub const BEST_EFFORT: u32 = 1;

/// [`Op::flags`] of [`OpCode::Open`]: the descriptor is closed first, and no other is left open, as POSIX specifies.
pub const IN_PLACE: u32 = 2;

/// [`Op::flags`] of [`OpCode::Open`]: files in procfs, and targets of its magic links, are refused. For procfs, a child
/// that shares its caller's memory is that caller: `/proc/self/mem` is the caller's memory, and `/dev/fd` has
/// descriptors that exec will close.
pub const NOT_PROCFS: u32 = 4;

/// [`Op::flags`] in addition to [`NOT_PROCFS`]: all files are refused if openat2 is not available to check them.
pub const SURELY: u32 = 8;

/// The descriptor number of an [`OpCode::Open`] that only checks whether the file can be opened.
pub const NOWHERE: i32 = -1;

/// The errno of an [`OpCode::Open`] that [`NOT_PROCFS`] has refused. The kernel does not use it.
pub const IN_PROCFS: i32 = 4096;

/// [`Op::flags`] of [`OpCode::Exec`]: the next candidate is tried after any failure.
pub const TRY_ALL: u32 = 16;

/// [`Op::flags`] of [`OpCode::Exec`]: the shell also runs binaries that the kernel does not recognize, as with `execvp(3)`.
pub const ANY_BY_SHELL: u32 = 32;

/// The operation of an [`Op`]. The numbers are stable: failures are reported with them across processes.
#[repr(u32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpCode {
    /// Unshare the file-descriptor table and keep only the low descriptors. No operands.
    Table = 1,
    /// Move every [`Pair`]'s source to its target.
    Place = 2,
    /// Report to the caller that the child no longer needs its descriptors.
    Taken = 3,
    /// Close descriptors that are not in the header's `keep` list, if the table was copied.
    CloseOthers = 4,
    /// `setsid(2)`.
    SetSid = 5,
    /// `setpgid(2)` of the child to group `a` (0: a new group).
    SetPgid = 6,
    /// `chdir(2)` to the string at `a`.
    Chdir = 7,
    /// `open(2)` of the string at `a` with flags `b` and mode `c` as the descriptor in the low half of `set`, which
    /// may be [`NOWHERE`].
    Open = 8,
    /// `dup3(2)` of the child's descriptor `a` to `b`.
    Dup = 9,
    /// The signals in `set` are reset to their default action.
    SigDefault = 10,
    /// The signals in `set` are ignored.
    SigIgnore = 11,
    /// The signal mask becomes `set`; with `a` = 1 it becomes the caller's mask.
    SigMask = 12,
    /// `execve(2)` of each of the `b` strings in the list of offsets at `a`, until one succeeds. Retried for up to `c`
    /// milliseconds while a program is open for writing (ETXTBSY). With `set`, a file that is no program (ENOEXEC) is
    /// run by the shell: the argument vectors for that, one for each string, are at the offset in the lower half of
    /// `set`, and its upper half is the number of words in each.
    Exec = 13,
    /// The system call in the [`Call`] at `a`. `b` is the number of the step for reports, `c` the offset of a string
    /// that names the step's object (0: none).
    Call = 14,
    /// `prctl(2)` PR_SET_PDEATHSIG of signal `a`; the child exits if its parent has already died.
    ParentDeathSignal = 15,
    /// The child's process group (its own, after `SetPgid`) becomes the foreground group of the terminal at the child's
    /// descriptor `a`.
    Foreground = 16,
    /// `execveat(2)` of the child's descriptor `a`.
    ExecFd = 17,
    /// Wait until the caller has written the ID maps of a new user namespace.
    AwaitGo = 18,
    /// `seccomp(2)` SECCOMP_SET_MODE_FILTER of the `b` instructions at `a`.
    Seccomp = 19,
    /// Send the descriptor in variable `b` to the caller, over the socket at the child's descriptor `a`.
    HandBack = 20,
    /// Call the frame's hook, in a forked child. No operands.
    PreExec = 21,
    /// Close the child's descriptors from `a` to `b`.
    CloseRange = 22,
    /// `chdir(2)` to the path of the working directory. With `a` = 1 only if it is one of another mount namespace.
    EnterAgain = 23,
}

/// A system call as data: used for most settings, and for calls that this library does not know.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Call {
    /// The system call's number on this architecture.
    pub number: u32,
    /// Which arguments are not plain numbers: see [`argument_is_offset`], [`argument_is_variable`] and [`argument_is_address`].
    pub flags: u32,
    /// 1 + the variable that stores the result; 0: none.
    pub result: u32,
    /// An errno that is a success, because the state is already as requested. 0: none.
    pub accept: u32,
    /// The arguments.
    pub args: [u64; 6],
}

/// [`Call::flags`]: argument `n` is the offset of an object in the arena; its address is passed.
pub const fn argument_is_offset(n: u32) -> u32 {
    1 << n
}

/// [`Call::flags`]: argument `n` is the number of a variable; its value is passed.
pub const fn argument_is_variable(n: u32) -> u32 {
    1 << (8 + n)
}

/// [`Call::flags`]: argument `n` is the number of a variable; its address is passed. A structure lies in consecutive
/// variables.
pub const fn argument_is_address(n: u32) -> u32 {
    1 << (24 + n)
}

/// [`Call::flags`]: no system call is made. The result is the first argument.
pub const STORE: u32 = 1 << 17;

/// [`Call::flags`]: the call is retried on EAGAIN, at most [`TRIES`] times.
pub const TRY_AGAIN: u32 = 1 << 16;

/// The maximum number of tries of a call with [`TRY_AGAIN`].
pub const TRIES: u32 = 256;

/// The number of variables of a plan.
pub const VARIABLES: usize = 32;

/// The number of variables for the user; the others are for the compiler.
pub const CALLER_VARIABLES: usize = 15;

/// The maximum number of failed best-effort steps in a frame. The compiler refuses a plan in which more could fail.
pub const MISSES: usize = 128;

/// Where a descriptor of the child comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// This descriptor of the caller.
    Descriptor(i32),
    /// The value of this slot of the run's [`Frame`](crate::frame::Frame).
    Slot(usize),
    /// `/dev/null`.
    Null,
}

/// An [`Origin`] as one number: a descriptor of 0 or more, -1-n for slot n, or the lowest number for `/dev/null`. A
/// zygote writes into a plan the numbers of the descriptors that it has received.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OriginNumber(i32);

impl OriginNumber {
    /// The number of an origin. A descriptor must be 0 or more.
    pub const fn of(origin: Origin) -> Self {
        match origin {
            Origin::Descriptor(number) => Self(number),
            Origin::Slot(slot) => Self(-1 - slot as i32),
            Origin::Null => Self(i32::MIN),
        }
    }

    /// The origin that is already given as its number.
    pub const fn from_number(number: i32) -> Self {
        Self(number)
    }

    /// The origin that the number stands for.
    #[inline(always)]
    pub const fn origin(self) -> Origin {
        match self.0 {
            i32::MIN => Origin::Null,
            number if number < 0 => Origin::Slot((-1 - number) as usize),
            number => Origin::Descriptor(number),
        }
    }
}

/// A descriptor of the program: the caller's `source` becomes the child's `target`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Pair {
    /// Where it comes from.
    pub source: OriginNumber,
    /// The child's number.
    pub target: i32,
}

impl Pair {
    /// The child's `target` from this origin.
    pub const fn new(origin: Origin, target: i32) -> Self {
        Self { source: OriginNumber::of(origin), target }
    }

    /// Where it comes from.
    #[inline(always)]
    pub const fn origin(&self) -> Origin {
        self.source.origin()
    }
}

/// Converts the offsets in the two vectors to addresses (`base` = the arena's own address) or back (`base` = 0).
///
/// Does nothing if they are already converted so.
pub unsafe fn relocate(arena: *mut u64, base: u64) {
    let header = arena.cast::<Header>();
    // SAFETY: an arena begins with its header (module contract).
    let (old, first, count) = unsafe { ((*header).base, (*header).argv, (*header).pointer_count) };
    for n in 0..count as usize {
        // SAFETY: the vectors lie inside the arena (module contract).
        let word = unsafe { &mut *arena.byte_add(first as usize).add(n) };
        if *word != 0 {
            *word = word.wrapping_sub(old).wrapping_add(base);
        }
    }
    // SAFETY: as above.
    unsafe { (*header).base = base };
}

/// The environment vector for `execve(2)`.
#[inline(always)]
pub unsafe fn environment(plan: *const Header) -> *const u64 {
    // SAFETY: an arena begins with its header, whose vectors lie inside it (module contract).
    unsafe {
        match (*plan).environment {
            0 => at(plan, (*plan).envp),
            elsewhere => elsewhere as *const u64,
        }
    }
}

/// The arena's object at `offset`.
#[inline(always)]
pub unsafe fn at<T>(plan: *const Header, offset: u32) -> *const T {
    // SAFETY: offsets lie inside the arena (module contract).
    unsafe { plan.byte_add(offset as usize).cast() }
}

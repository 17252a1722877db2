//! The Plan: what a child is to do, as flat data.
//!
//! A plan is one block of memory (an *arena*) of 64-bit words: a [`Header`], the [`Op`]s in the order in which they are
//! played, the argument and environment vectors, lists, and at the end the strings. Everything inside refers to
//! everything else by its offset in bytes from the start, so an arena can be moved or sent to another process as it
//! is. Only the two vectors that `execve(2)` reads must hold addresses; [`relocate`] turns their offsets into addresses
//! once, when the arena has reached the place where it will be played. One that is played where it was made may name an
//! environment that lies elsewhere in that memory.
//!
//! The crate `forkless` compiles arenas; nothing here allocates. A plan is read-only while it is played, so any number
//! of children may play one at the same time. What differs from run to run is in the [`Frame`](crate::frame::Frame).
//!
//! # Safety
//! The functions here trust the arena: its offsets lie inside it and its strings end in NUL. The compiler that made it
//! answers for that.

/// First word of an arena: "fkpl".
pub const MAGIC: u32 = 0x6c70_6b66;

/// Changes when the layout or a meaning changes; a process refuses arenas of another version.
pub const VERSION: u32 = 3;

/// The most descriptors that one plan may name.
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
    /// How many there are.
    pub op_count: u32,
    /// Offset of the argument vector, which ends in a zero word.
    pub argv: u32,
    /// Offset of the environment vector, which ends in a zero word. It follows the argument vector directly.
    pub envp: u32,
    /// Words in both vectors together, their zero words included, and in those for the shell, which follow.
    pub pointer_count: u32,
    /// Offset of the [`Pair`]s, sorted by target.
    pub pairs: u32,
    /// How many there are.
    pub pair_count: u32,
    /// Offset of a sorted list of `i32`: every descriptor number that the program is to have, 0 to 2 included.
    pub keep: u32,
    /// How many there are.
    pub keep_count: u32,
    /// Fills the header up to a whole number of words.
    pub reserved: u32,
    /// Address of an environment vector outside the arena, which then has an empty one; 0: none. Such an arena can only be
    /// played in the memory that it was made in.
    pub environment: u64,
}

/// One step of the playback. What `a`, `b` and `c` mean stands with each [`OpCode`].
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Op {
    /// What to do.
    pub code: OpCode,
    /// Any of [`BEST_EFFORT`], [`IN_PLACE`], [`NOT_PROCFS`], [`SURELY`] and [`TRY_ALL`].
    pub flags: u32,
    /// First operand.
    pub a: u32,
    /// Second operand.
    pub b: u32,
    /// Third operand.
    pub c: u32,
    /// With [`BEST_EFFORT`]: how many of the ops after this one a failure of it skips too, since they belong together.
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

/// [`Op::flags`]: a failure is noted, and the launch goes on.
pub const BEST_EFFORT: u32 = 1;

/// [`Op::flags`] of [`OpCode::Open`]: what is at the number is closed first, and nothing else is left open, as POSIX has it.
pub const IN_PLACE: u32 = 2;

/// [`Op::flags`] of [`OpCode::Open`]: nothing that is in procfs is opened, nor what a link of procfs' leads to. It takes a child that
/// shares its caller's memory for that caller: `/proc/self/mem` is the caller's, and `/dev/fd` has descriptors that exec is yet to close.
pub const NOT_PROCFS: u32 = 4;

/// [`Op::flags`] beside [`NOT_PROCFS`]: nor anything where openat2 is not there to tell.
pub const SURELY: u32 = 8;

/// A descriptor's number for an [`OpCode::Open`] that is only to see whether the file can be opened.
pub const NOWHERE: i32 = -1;

/// The errno, which is none of the kernel's, of an [`OpCode::Open`] that [`NOT_PROCFS`] has kept from it.
pub const IN_PROCFS: i32 = 4096;

/// [`Op::flags`] of [`OpCode::Exec`]: the next candidate is tried whatever the failure of one was.
pub const TRY_ALL: u32 = 16;

/// What an [`Op`] does. The numbers are stable: they are how a failure is reported across the process border.
#[repr(u32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpCode {
    /// Give the child a descriptor table of its own with only the low descriptors in it. No operands.
    Table = 1,
    /// Bring every [`Pair`]'s source to its target.
    Place = 2,
    /// Tell the parent that its descriptors are no longer needed.
    Taken = 3,
    /// Close what is not in the header's `keep` list, where the table was copied.
    CloseOthers = 4,
    /// `setsid(2)`.
    SetSid = 5,
    /// `setpgid(2)` of the child to group `a` (0: a new group of its own).
    SetPgid = 6,
    /// `chdir(2)` to the string at `a`.
    Chdir = 7,
    /// `open(2)` of the string at `a` with flags `b` and mode `c` as the descriptor in the low half of `set`, which may be [`NOWHERE`].
    Open = 8,
    /// `dup3(2)` of the child's descriptor `a` to `b`.
    Dup = 9,
    /// The signals in `set` get their default action.
    SigDefault = 10,
    /// The signals in `set` are ignored.
    SigIgnore = 11,
    /// The signal mask becomes `set`; with `a` = 1 it becomes what the caller's mask was.
    SigMask = 12,
    /// `execve(2)` of each of the `b` strings in the list of offsets at `a`, until one is a program; retried for up to
    /// `c` milliseconds while a program is busy (ETXTBSY). With `set`, one that is no program (ENOEXEC) is given to the
    /// shell: the argument vectors for that, one for each string, are at the offset in its lower half, and have as many words
    /// each as its upper half says.
    Exec = 13,
    /// The system call in the [`Call`] at `a`. `b` is the step's number for reports, `c` the offset of a string that
    /// says what the step is about (0: none).
    Call = 14,
    /// `prctl(2)` PR_SET_PDEATHSIG of signal `a`; ends the child if its parent has died meanwhile.
    ParentDeathSignal = 15,
    /// The child's process group (its own, after `SetPgid`) becomes the foreground group of the terminal at the child's
    /// descriptor `a`.
    Foreground = 16,
    /// `execveat(2)` of the child's descriptor `a`.
    ExecFd = 17,
    /// Wait until the parent has done its part: the id maps of a new user namespace.
    AwaitGo = 18,
    /// `seccomp(2)` SECCOMP_SET_MODE_FILTER of the `b` instructions at `a`.
    Seccomp = 19,
    /// Send the descriptor in variable `b` to the parent, over the socket at the child's descriptor `a`.
    HandBack = 20,
    /// Call the frame's hook: what the caller wants done in a forked child. No operands.
    PreExec = 21,
}

/// A system call as data: how most settings are made, and the door to what this library does not know.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Call {
    /// The system call's number on this machine.
    pub number: u32,
    /// Which arguments are not plain numbers: see [`argument_is_offset`] and [`argument_is_variable`].
    pub flags: u32,
    /// 1 + the variable that takes the result; 0: none does.
    pub result: u32,
    /// An errno that is no failure: what was to be done is so already. 0: none.
    pub accept: u32,
    /// The arguments.
    pub args: [u64; 6],
}

/// [`Call::flags`]: argument `n` is the offset of an object in the arena; the call gets its address.
pub const fn argument_is_offset(n: u32) -> u32 {
    1 << n
}

/// [`Call::flags`]: argument `n` is the number of a variable; the call gets the result of the one that filled it.
pub const fn argument_is_variable(n: u32) -> u32 {
    1 << (8 + n)
}

/// [`Call::flags`]: the call is made again where it answers EAGAIN, [`TRIES`] times at most.
pub const TRY_AGAIN: u32 = 1 << 16;

/// How often a call with [`TRY_AGAIN`] is made.
pub const TRIES: u32 = 256;

/// How many variables a plan has.
pub const VARIABLES: usize = 32;

/// The first so many are the caller's; the others belong to the compiler.
pub const CALLER_VARIABLES: usize = 15;

/// How many failed best-effort steps a frame can note. The compiler refuses a plan in which more could fail.
pub const MISSES: usize = 128;

/// Where a descriptor of the child's comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// This descriptor of the parent's.
    Descriptor(i32),
    /// What this slot of the run's [`Frame`](crate::frame::Frame) holds.
    Slot(usize),
    /// `/dev/null`.
    Null,
}

/// An [`Origin`] as one number: a descriptor of 0 or more, -1-n for slot n, or the lowest number for `/dev/null`. A zygote writes
/// the numbers of descriptors that it got into a plan.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source(i32);

impl Source {
    /// Of an origin; descriptors are numbers of 0 or more.
    pub const fn of(origin: Origin) -> Self {
        match origin {
            Origin::Descriptor(number) => Self(number),
            Origin::Slot(slot) => Self(-1 - slot as i32),
            Origin::Null => Self(i32::MIN),
        }
    }

    /// From its number.
    pub const fn from_number(number: i32) -> Self {
        Self(number)
    }

    /// What it stands for.
    #[inline(always)]
    pub const fn origin(self) -> Origin {
        match self.0 {
            i32::MIN => Origin::Null,
            number if number < 0 => Origin::Slot((-1 - number) as usize),
            number => Origin::Descriptor(number),
        }
    }
}

/// One descriptor for the child: the parent's `source` as the child's `target`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Pair {
    /// Where it comes from.
    pub source: Source,
    /// The child's number.
    pub target: i32,
}

impl Pair {
    /// The child's `target` from this origin.
    pub const fn new(origin: Origin, target: i32) -> Self {
        Self { source: Source::of(origin), target }
    }

    /// Where it comes from.
    #[inline(always)]
    pub const fn origin(&self) -> Origin {
        self.source.origin()
    }
}

/// Turns the offsets in the two vectors into addresses (`base` = the arena's own address) or back (`base` = 0).
///
/// Changes nothing when they already are what is asked for.
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

/// The environment vector that `execve(2)` is to read.
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

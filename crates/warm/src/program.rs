//! How a child of a template becomes the program: what `execve(2)` would give it, and what the template has in its place.

use core::cell::UnsafeCell;
use core::ffi::{c_char, c_int};
use core::mem::zeroed;
use core::ptr::null_mut;
use core::sync::atomic::Ordering::{Relaxed, Release};
use core::sync::atomic::fence;
use forkless_core::frame::{Frame, LEFT};
use forkless_core::parcel::refusal;
use forkless_core::plan::{Header, at, environment};
use forkless_core::sync;
use forkless_core::sys::{self, Result, prctl, uapi};

/// `struct prctl_mm_map`, prctl(2) PR_SET_MM_MAP: all addresses that `/proc/PID/stat` shows.
#[repr(C)]
#[derive(Clone, Copy)]
struct Map {
    start_code: u64,
    end_code: u64,
    start_data: u64,
    end_data: u64,
    start_brk: u64,
    brk: u64,
    start_stack: u64,
    arg_start: u64,
    arg_end: u64,
    env_start: u64,
    env_end: u64,
    auxv: u64,
    auxv_size: u32,
    exe_fd: u32,
}

const PR_SET_MM: usize = 35;
const PR_SET_MM_MAP: usize = 14;

const AT_NULL: u64 = 0;
const AT_SECURE: u64 = 23;
const AT_RANDOM: u64 = 25;

/// The length of the bytes at AT_RANDOM.
const RANDOM: usize = 16;

/// What the template recorded, for its children, when it stopped.
pub(crate) struct Program {
    map: Map,
    /// The auxiliary vector, and its number of words.
    auxv: *const u64,
    auxv_words: usize,
    random: *mut u8,
    /// The head of libc's list of robust futexes, and the length that libc registered.
    robust: [usize; 2],
    /// Where libc keeps the thread's ID.
    thread_number: u64,
    /// PR_GET_NAME.
    name: [u8; 16],
}

/// A child's arguments, as `main(3)` gets them.
pub(crate) type Arguments = (c_int, *mut *mut c_char);

unsafe extern "C" {
    static mut environ: *mut *mut c_char;
    static mut __environ: *mut *mut c_char;
    static mut program_invocation_name: *mut c_char;
    static mut program_invocation_short_name: *mut c_char;
    static mut __progname: *mut c_char;
    static mut __progname_full: *mut c_char;
}

impl Program {
    pub(crate) const EMPTY: Self = Self {
        // SAFETY: a `Map` consists of numbers, so all zeroes are valid.
        map: unsafe { zeroed() },
        auxv: core::ptr::null(),
        auxv_words: 0,
        random: null_mut(),
        robust: [0; 2],
        thread_number: 0,
        name: [0; 16],
    };

    /// The address for CLONE_CHILD_SETTID.
    pub(crate) fn thread_number(&self) -> u64 {
        self.thread_number
    }

    /// Notes what a child needs. The error is a [`refusal`].
    pub(crate) unsafe fn observe(&mut self, argc: c_int, argv: *mut *mut c_char) -> core::result::Result<(), u64> {
        // SAFETY: the kernel has laid out the environment behind the arguments, and the auxiliary vector behind that.
        unsafe {
            let mut word = argv.add(argc as usize + 1).cast::<u64>();
            while *word != 0 {
                word = word.add(1);
            }
            self.auxv = word.add(1);
            let mut entry = self.auxv;
            while *entry != AT_NULL {
                match *entry {
                    AT_SECURE if *entry.add(1) != 0 => return Err(refusal::PRIVILEGED),
                    AT_RANDOM => self.random = *entry.add(1) as *mut u8,
                    _ => {}
                }
                entry = entry.add(2);
            }
            self.auxv_words = entry.offset_from(self.auxv) as usize + 2;
        }
        if self.random.is_null() {
            return Err(refusal::KERNEL);
        }
        let robust = &raw mut self.robust as usize;
        let calls = [
            // The list and its length.
            (uapi::__NR_get_robust_list, [0, robust, robust + 8, 0, 0, 0]),
            (uapi::__NR_prctl, [prctl::PR_GET_TID_ADDRESS as usize, &raw mut self.thread_number as usize, 0, 0, 0, 0]),
            (uapi::__NR_prctl, [prctl::PR_GET_NAME as usize, self.name.as_mut_ptr() as usize, 0, 0, 0, 0]),
        ];
        for (number, args) in calls {
            // SAFETY: the kernel writes words and a name of 16 bytes.
            if unsafe { sys::syscall(number, args) }.is_err() {
                return Err(refusal::KERNEL);
            }
        }
        if self.thread_number == 0 || self.robust[0] == 0 {
            return Err(refusal::KERNEL);
        }
        self.map = addresses().ok_or(refusal::KERNEL)?;
        // It fails where the kernel has no CONFIG_CHECKPOINT_RESTORE.
        // SAFETY: the addresses are those that this process has.
        unsafe { set_map(&self.map) }.map_err(|_| refusal::KERNEL)
    }

    /// Gives this child the arguments and the environment of a plan, and what else `execve(2)` makes new: the part that
    /// can fail. It does not write to `self`, whose page would be copied.
    pub(crate) unsafe fn become_of(&self, plan: *const Header) -> Result<Arguments> {
        // SAFETY: this is the child, and the plan is whole.
        unsafe {
            let mut map = self.map;
            let arguments = self.lay_out(plan, &mut map)?;
            set_map(&map)?;
            self.renew_secrets()?;
            let name = [prctl::PR_SET_NAME as usize, self.name.as_ptr() as usize, 0, 0, 0, 0];
            sys::syscall(uapi::__NR_prctl, name)?;
            Ok(arguments)
        }
    }

    /// Lays out count, arguments, environment, auxiliary vector and strings in one block, in the order in which
    /// `execve(2)` lays them out on the stack: some programs step from one to the next. The kernel shows the strings only
    /// if they lie in anonymous memory. Notes in `map` where they lie.
    unsafe fn lay_out(&self, plan: *const Header, map: &mut Map) -> Result<Arguments> {
        // SAFETY: the vectors of a plan end in zero words, and hold addresses of strings that end in NUL.
        unsafe {
            let (argv, envp) = (at::<u64>(plan, (*plan).argv), environment(plan));
            let ((argc, arg_bytes), (envc, env_bytes)) = (measure(argv), measure(envp));
            let words = 1 + argc + 1 + envc + 1 + self.auxv_words;
            let block = room(words * 8 + arg_bytes + env_bytes)?;
            let strings = block.add(words).cast::<u8>();
            *block = argc as u64;
            let (to_argv, to_envp) = (block.add(1), block.add(argc + 2));
            let end = copy(argv, argc, to_argv, strings);
            let last = copy(envp, envc, to_envp, end);
            to_envp.add(envc + 1).copy_from_nonoverlapping(self.auxv, self.auxv_words);
            (map.arg_start, map.arg_end) = (strings as u64, end as u64);
            (map.env_start, map.env_end) = (end as u64, last as u64);
            let vector = to_envp.cast::<*mut c_char>();
            (environ, __environ) = (vector, vector);
            let full = *to_argv as *mut c_char;
            if !full.is_null() {
                let short = after_last_slash(full);
                (program_invocation_name, __progname_full) = (full, full);
                (program_invocation_short_name, __progname) = (short, short);
            }
            Ok((argc as c_int, to_argv.cast()))
        }
    }

    /// New bytes at AT_RANDOM, and from them a new stack canary, as libc makes it.
    unsafe fn renew_secrets(&self) -> Result<()> {
        let mut bytes = [0u64; RANDOM / 8];
        // SAFETY: the kernel writes the buffer; the bytes at AT_RANDOM are on this process's stack.
        unsafe {
            if sys::syscall(uapi::__NR_getrandom, [bytes.as_mut_ptr() as usize, RANDOM, 0, 0, 0, 0])? != RANDOM {
                return Err(sys::errno::EAGAIN);
            }
            self.random.copy_from_nonoverlapping(bytes.as_ptr().cast(), RANDOM);
            // The lowest byte is 0, which ends a string that runs over.
            let canary = bytes[0] & !0xff;
            core::arch::asm!("mov fs:[0x28], {}", in(reg) canary, options(nostack, preserves_flags));
        }
        Ok(())
    }

    /// Closes what exec would close.
    pub(crate) unsafe fn close_descriptors(&self, plan: *const Header) {
        // SAFETY: the header's list lies in the arena. The table is the child's own.
        unsafe {
            let (keep, count) = (at::<i32>(plan, (*plan).keep), (*plan).keep_count as usize);
            let mut from = 0;
            for n in 0..count {
                let number = *keep.add(n);
                if number > from {
                    let _ = sys::close_range(from as u32, number as u32 - 1, 0);
                }
                let is_closed = sys::descriptor_flags(number) == Ok(uapi::FD_CLOEXEC as i32);
                if is_closed {
                    let _ = sys::close(number);
                }
                from = number + 1;
            }
            let _ = sys::close_range(from as u32, u32::MAX, 0);
        }
    }

    /// Reports that the program has been executed, and leaves the caller's memory: after this the frame and the plan
    /// belong to another launch.
    pub(crate) unsafe fn release(&self, frame: &Frame, plan: *const Header) {
        // SAFETY: the list is libc's, in this process's own memory. Without the call, the kernel would write to the parcel
        // when the program ends.
        unsafe {
            let _ = sys::syscall(uapi::__NR_set_robust_list, [self.robust[0], self.robust[1], 0, 0, 0, 0]);
            frame.detail.store(0, Relaxed);
            frame.step.store((*plan).op_count, Relaxed);
        }
        fence(Release);
        // The parcel stays mapped here until the caller of this function unmaps it, so the wake has a valid address.
        frame.word.store(LEFT, Release);
        sync::futex_wake(&frame.word);
    }
}

/// PR_SET_MM_MAP.
unsafe fn set_map(map: &Map) -> Result<()> {
    let args = [PR_SET_MM, PR_SET_MM_MAP, &raw const *map as usize, size_of::<Map>(), 0, 0];
    // SAFETY: the kernel reads the map. The addresses that change (arguments, environment) are only shown in /proc.
    unsafe { sys::syscall(uapi::__NR_prctl, args) }.map(drop)
}

/// The usual length of arguments, environment and auxiliary vector.
const USUAL: usize = 16 * 1024;

/// Memory for these. A mapping of its own would cost as much as three page faults. The block begins a page, so that it lies
/// in anonymous memory, which the file's last page is not.
#[repr(align(4096))]
struct Block(UnsafeCell<[u8; USUAL]>);

// SAFETY: only a child uses it, once, in its only thread.
unsafe impl Sync for Block {}

static BLOCK: Block = Block(UnsafeCell::new([0; USUAL]));

/// Memory of at least this length, all zeroes.
fn room(length: usize) -> Result<*mut u64> {
    if length <= USUAL {
        return Ok(BLOCK.0.get().cast());
    }
    let (protection, flags) = (uapi::PROT_READ | uapi::PROT_WRITE, uapi::MAP_PRIVATE | uapi::MAP_ANONYMOUS);
    let args = [0, length.next_multiple_of(4096), protection as usize, flags as usize, usize::MAX, 0];
    // SAFETY: a new mapping at an address that the kernel chooses.
    unsafe { sys::syscall(uapi::__NR_mmap, args) }.map(|block| block as *mut u64)
}

/// The number of strings of a vector, and their length with the NUL bytes.
unsafe fn measure(vector: *const u64) -> (usize, usize) {
    let (mut count, mut bytes) = (0, 0);
    // SAFETY: the vector ends in a zero word (caller).
    unsafe {
        while *vector.add(count) != 0 {
            bytes += length(*vector.add(count) as *const u8) + 1;
            count += 1;
        }
    }
    (count, bytes)
}

/// Copies strings to `strings` and their new addresses to `to`, with a zero word. Returns the end of the strings.
unsafe fn copy(vector: *const u64, count: usize, to: *mut u64, strings: *mut u8) -> *mut u8 {
    let mut next = strings;
    // SAFETY: there is room for what was measured (caller).
    unsafe {
        for n in 0..count {
            let text = *vector.add(n) as *const u8;
            let bytes = length(text) + 1;
            next.copy_from_nonoverlapping(text, bytes);
            *to.add(n) = next as u64;
            next = next.add(bytes);
        }
        *to.add(count) = 0;
    }
    next
}

unsafe fn length(text: *const u8) -> usize {
    // SAFETY: the text ends in NUL (caller).
    unsafe { core::ffi::CStr::from_ptr(text.cast()) }.count_bytes()
}

unsafe fn after_last_slash(path: *mut c_char) -> *mut c_char {
    let (mut name, mut at) = (path, path);
    // SAFETY: the path ends in NUL (caller).
    unsafe {
        while *at != 0 {
            if *at as u8 == b'/' {
                name = at.add(1);
            }
            at = at.add(1);
        }
    }
    name
}

/// The addresses of this process, from `/proc/self/stat`; see proc_pid_stat(5).
fn addresses() -> Option<Map> {
    let mut text = [0u8; 1024];
    // SAFETY: the path ends in NUL, the kernel writes at most the buffer's length, and the descriptor is this function's
    // own. brk(0) changes nothing.
    let (filled, brk) = unsafe {
        let file = sys::open(c"/proc/self/stat".as_ptr().cast(), uapi::O_RDONLY | uapi::O_CLOEXEC, 0).ok()?;
        let filled = sys::read(file, text.as_mut_ptr(), text.len());
        let _ = sys::close(file);
        (filled.ok()?, sys::syscall(uapi::__NR_brk, [0; 6]).ok()? as u64)
    };
    let text = text.get(..filled)?;
    // The name may contain anything, but nothing behind it contains a parenthesis.
    let end = text.iter().rposition(|&byte| byte == b')')?;
    // The state, which follows, is field 3.
    let mut fields = text.get(end + 2..)?.split(|&byte| byte == b' ' || byte == b'\n');
    let mut at = 3;
    let mut field = |number: usize| {
        let digits = fields.nth(number - at)?;
        at = number + 1;
        digits.iter().try_fold(0u64, |value, &digit| {
            digit.is_ascii_digit().then(|| value.wrapping_mul(10).wrapping_add(u64::from(digit - b'0')))
        })
    };
    Some(Map {
        start_code: field(26)?,
        end_code: field(27)?,
        start_stack: field(28)?,
        start_data: field(45)?,
        end_data: field(46)?,
        start_brk: field(47)?,
        brk,
        arg_start: field(48)?,
        arg_end: field(49)?,
        env_start: field(50)?,
        env_end: field(51)?,
        auxv: 0,
        auxv_size: 0,
        exe_fd: u32::MAX,
    })
}

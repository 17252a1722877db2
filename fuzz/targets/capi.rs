//! Random calls of `forkless.h`, with handles in any state, null pointers, numbers that mean nothing and rooms too small. Only what is
//! undefined in C is left out: freed handles, wild pointers. Children run `/bin/true`, if anything.
//!
//! What a command may be told is limited to what leaves the machine as it is: no file is made, nothing outside of the child is changed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::cell::UnsafeCell;
use std::ffi::{c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::LazyLock;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicU32, AtomicUsize};

// The functions of the header are its symbols.
extern crate forkless_capi as _;

/// `forkless_error`, and a fence behind it.
#[repr(C)]
struct Error {
    step: c_int,
    errnum: c_int,
    message: [c_char; 504],
}

/// `forkless_capture`.
#[repr(C)]
struct Capture {
    size: usize,
    flags: c_int,
    signal: c_int,
    input: *const u8,
    input_size: usize,
    limit: usize,
    timeout_ms: i64,
    grace_ms: i64,
    linger_ms: i64,
}

/// The beginning of `forkless_output`.
#[repr(C)]
struct Output {
    status: c_int,
    flags: c_int,
    out: *const u8,
    out_size: usize,
    err: *const u8,
    err_size: usize,
}

/// `forkless_ended`.
#[repr(C)]
struct Ended {
    child: *mut c_void,
    value: *mut c_void,
    status: c_int,
    error: c_int,
}

type H = *mut c_void;
type Text = *const c_char;

macro_rules! declare {
    ($name:ident ($($arg:ty),*)) => {
        unsafe extern "C" {
            fn $name($(_: $arg),*) -> c_int;
        }
    };
}

macro_rules! signature {
    (($($arg:ty),*)) => { unsafe extern "C" fn($($arg),*) -> c_int };
}

/// Declares functions of one type, and lists them.
macro_rules! functions {
    ($list:ident: fn $args:tt = $($name:ident)*) => {
        $(declare!($name $args);)*
        const $list: &[signature!($args)] = &[$($name),*];
    };
}

functions!(TEXTS: fn(H, Text) = forkless_command_or_else forkless_command_arg forkless_command_arg0 forkless_command_env_remove
    forkless_command_current_dir forkless_command_chroot forkless_command_user forkless_command_group forkless_command_hostname
    forkless_command_read_only forkless_command_unmount forkless_command_proc forkless_command_pivot_root);
functions!(NUMBERS: fn(H, c_int) = forkless_command_program_fd forkless_command_current_dir_fd forkless_command_fd_inherit
    forkless_command_fd_null forkless_command_fd_pipe forkless_command_fd_socketpair forkless_command_inherit_all
    forkless_command_setsid forkless_command_process_group forkless_command_controlling_terminal forkless_command_foreground
    forkless_command_signal_default forkless_command_signal_ignore forkless_command_signal_inherit forkless_command_signal_block
    forkless_command_inherit_signal_mask forkless_command_pidfd forkless_command_kill_on_free forkless_command_keep_record_locks forkless_command_scripts_by_shell
    forkless_command_best_effort forkless_command_launcher forkless_command_nice forkless_command_oom_score_adj
    forkless_command_no_new_privs forkless_command_parent_death_signal forkless_command_thread_death_signal
    forkless_command_cgroup forkless_command_landlock);
functions!(WORDS: fn(H, u32) = forkless_command_uid forkless_command_gid forkless_command_umask forkless_command_personality
    forkless_command_securebits forkless_command_hand_back forkless_command_retry_busy);
functions!(LONGS: fn(H, u64) = forkless_command_timer_slack forkless_command_unshare forkless_command_bounding_set
    forkless_command_permitted forkless_command_effective forkless_command_inheritable forkless_command_ambient);
functions!(PAIRS: fn(H, c_int, c_int) = forkless_command_fd forkless_command_fd_dup forkless_command_scheduler
    forkless_command_io_priority);
functions!(TWO_TEXTS: fn(H, Text, Text) = forkless_command_env forkless_command_bind forkless_command_bind_read_only
    forkless_command_tmpfs);
functions!(MAPS: fn(H, u32, u32, u32) = forkless_command_map_uid forkless_command_map_gid);
functions!(LISTS: fn(H, *const Text) = forkless_command_args forkless_command_envs);
functions!(STARTS: fn(H, *mut H, *mut Error) = forkless_command_spawn forkless_command_launch);
functions!(PREPARED_STARTS: fn(H, *mut H, *mut Error) = forkless_prepared_spawn forkless_prepared_launch);
functions!(RUNS: fn(H, *mut c_int, *mut Error) = forkless_command_status);
functions!(PREPARED_RUNS: fn(H, *mut c_int, *mut Error) = forkless_prepared_status);
functions!(CAPTURES: fn(H, *const Capture, *mut H, *mut Error) = forkless_command_capture);
functions!(PREPARED_CAPTURES: fn(H, *const Capture, *mut H, *mut Error) = forkless_prepared_capture);
functions!(OF_CHILD: fn(H) = forkless_child_pid forkless_child_pidfd forkless_child_launcher forkless_child_kill);
functions!(NUMBERS_OF_CHILD: fn(H, c_int) = forkless_child_fd forkless_child_kill_on_free forkless_child_signal
    forkless_child_signal_group);
functions!(CHILD_WAITS: fn(H, *mut c_int, *mut Error) = forkless_child_try_wait);
functions!(CHILD_TIMED: fn(H, i64, *mut c_int, *mut Error) = forkless_child_wait_timeout forkless_child_wait_change);
functions!(NEW: fn(*mut H) = forkless_pipeline_new forkless_waitset_new);
functions!(COUNTS: fn(H) = forkless_pipeline_count forkless_waitset_count forkless_waitset_fd);

unsafe extern "C" {
    fn forkless_command_new(program: Text, command: *mut H) -> c_int;
    fn forkless_command_new_argv(argv: *const Text, command: *mut H) -> c_int;
    fn forkless_command_free(command: H);
    fn forkless_command_env_clear(command: H) -> c_int;
    fn forkless_command_rlimit(command: H, resource: c_int, soft: u64, hard: u64) -> c_int;
    fn forkless_command_groups(command: H, groups: *const u32, count: usize) -> c_int;
    fn forkless_command_cpu_affinity(command: H, processors: *const c_int, count: usize) -> c_int;
    fn forkless_command_fd_open(command: H, child_fd: c_int, path: Text, flags: c_int, mode: u32) -> c_int;
    fn forkless_command_seccomp(command: H, filter: *const [u16; 4], count: usize) -> c_int;
    fn forkless_command_join(command: H, name_space: u64, fd: c_int) -> c_int;
    fn forkless_command_prepare(command: H, prepared: *mut H, error: *mut Error) -> c_int;
    fn forkless_prepared_steps(prepared: H, text: *mut c_char, size: usize) -> c_int;
    fn forkless_prepared_free(prepared: H);
    fn forkless_launch_all(prepared: *const H, count: usize, children: *mut H, errors: *mut c_int) -> c_int;
    fn forkless_output_free(output: H);
    fn forkless_child_free(child: H);
    fn forkless_child_take_fd(child: H, child_fd: c_int) -> c_int;
    fn forkless_child_take_handed_back(child: H) -> c_int;
    fn forkless_child_route(child: H, text: *mut c_char, size: usize) -> c_int;
    fn forkless_child_usage(child: H, usage: *mut [u64; 10]) -> c_int;
    fn forkless_child_skipped(child: H, index: usize, skipped: *mut Error) -> c_int;
    fn forkless_child_wait(child: H, status: *mut c_int, error: *mut Error) -> c_int;
    fn forkless_child_wait_exec(child: H, timeout_ms: i64, error: *mut Error) -> c_int;
    fn forkless_child_terminate(child: H, number: c_int, grace: i64, status: *mut c_int, error: *mut Error) -> c_int;
    fn forkless_child_output(child: H, output: *mut H, error: *mut Error) -> c_int;
    fn forkless_reap_orphans() -> usize;
    fn forkless_step_words(step: c_int, text: *mut c_char, size: usize) -> c_int;
    fn forkless_pipeline_free(pipeline: H);
    fn forkless_pipeline_command(pipeline: H, command: H, error: *mut Error) -> c_int;
    fn forkless_pipeline_prepared(pipeline: H, prepared: H) -> c_int;
    fn forkless_pipeline_pipefail(pipeline: H, on: c_int) -> c_int;
    fn forkless_pipeline_status(
        p: H,
        count: usize,
        statuses: *mut c_int,
        status: *mut c_int,
        error: *mut Error,
    ) -> c_int;
    fn forkless_pipeline_spawn(pipeline: H, count: usize, children: *mut H, error: *mut Error) -> c_int;
    fn forkless_waitset_free(set: H);
    fn forkless_waitset_insert(set: H, child: H, value: H, key: *mut u64, error: *mut Error) -> c_int;
    fn forkless_waitset_remove(set: H, key: u64, child: *mut H) -> c_int;
    fn forkless_waitset_signal(set: H, key: u64, number: c_int) -> c_int;
    fn forkless_waitset_wait(set: H, timeout: i64, ended: *mut Ended, error: *mut Error) -> c_int;
}

/// The inputs' bytes, as arguments.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[usize::from(self.byte()) % list.len()]
    }

    fn int(&mut self) -> c_int {
        match self.byte() {
            byte @ 0..220 => c_int::from(byte % 68) - 2,
            byte => [i32::MAX, i32::MIN, 1023, 1024, 4095, 65536, 9999, -4096][usize::from(byte % 8)],
        }
    }

    fn long(&mut self) -> u64 {
        match self.byte() {
            byte @ 0..200 => u64::from(byte),
            byte => [u64::MAX, 1 << 63, 0x1000_0000, 0x1002_0000, 1 << 32, 0x7e02_0000, 0x2000_0000, 7]
                [usize::from(byte % 8)],
        }
    }

    /// A text without effect on the machine; now and then none.
    fn text(&mut self) -> Text {
        self.pick(&[
            c"a".as_ptr(),
            c"".as_ptr(),
            c"/".as_ptr(),
            c"/nonexistent/a".as_ptr(),
            c"/tmp".as_ptr(),
            c"root".as_ptr(),
            c"nobody".as_ptr(),
            c"\xff\xfe".as_ptr(),
            c"NAME=value".as_ptr(),
            c"size=1k".as_ptr(),
            c"true".as_ptr(),
            null(),
        ])
    }

    fn program(&mut self) -> Text {
        let programs = [c"/bin/true", c"true", c"/bin/true", c"/nonexistent", c"", c"/tmp"];
        if self.byte().is_multiple_of(16) { null() } else { self.pick(&programs).as_ptr() }
    }

    fn list(&mut self) -> Vec<Text> {
        let count = usize::from(self.byte() % 5);
        let mut list: Vec<Text> = (0..count).map(|_| self.text()).collect();
        list.push(null());
        list
    }

    fn time(&mut self) -> i64 {
        self.pick(&[0, 1, 5, 0])
    }
}

/// A place for a text, exactly as large as is said, so that the sanitizer sees a byte too many.
fn room(bytes: &mut Bytes<'_>, call: impl FnOnce(*mut c_char, usize) -> c_int) {
    let size = usize::from(bytes.byte() % 80);
    let mut room = vec![0x55 as c_char; size].into_boxed_slice();
    let answer = if bytes.byte().is_multiple_of(16) { call(null_mut(), size) } else { call(room.as_mut_ptr(), size) };
    checked(answer);
    if answer >= 0 && size > 0 {
        assert!(room.contains(&0), "a text without its end");
    }
}

/// 0 or more, or a negative errno.
fn checked(answer: c_int) -> c_int {
    look_at_children();
    assert!(answer > -4096, "{answer}");
    // A fault of the library itself.
    assert_ne!(answer, -libc::ENOTRECOVERABLE);
    answer
}

/// Handles of each type; any of them may be null.
#[derive(Default)]
struct World {
    commands: Vec<H>,
    prepared: Vec<H>,
    children: Vec<H>,
    pipelines: Vec<H>,
    sets: Vec<H>,
    keys: Vec<u64>,
}

fn one(list: &[H], bytes: &mut Bytes<'_>) -> H {
    let at = usize::from(bytes.byte());
    if list.is_empty() || at % 16 == 15 { null_mut() } else { list[at % list.len()] }
}

fn taken(list: &mut Vec<H>, bytes: &mut Bytes<'_>) -> H {
    let at = usize::from(bytes.byte());
    if list.is_empty() { null_mut() } else { list.swap_remove(at % list.len()) }
}

/// An error to be filled in, or none.
fn error(bytes: &mut Bytes<'_>, place: &mut Error) -> *mut Error {
    if bytes.byte().is_multiple_of(4) { null_mut() } else { place }
}

impl World {
    fn free(&mut self) {
        // SAFETY: handles that the library has given, each freed once.
        unsafe {
            self.sets.drain(..).for_each(|one| forkless_waitset_free(one));
            self.pipelines.drain(..).for_each(|one| forkless_pipeline_free(one));
            self.children.drain(..).for_each(|one| forkless_child_free(one));
            self.prepared.drain(..).for_each(|one| forkless_prepared_free(one));
            self.commands.drain(..).for_each(|one| forkless_command_free(one));
        }
    }

    /// A setting of a command.
    fn set(&mut self, bytes: &mut Bytes<'_>) {
        let command = one(&self.commands, bytes);
        // SAFETY: a live handle or null; texts and lists end as they must.
        checked(unsafe {
            match bytes.byte() % 16 {
                0..3 => bytes.pick(TEXTS)(command, bytes.text()),
                3..6 => bytes.pick(NUMBERS)(command, bytes.int()),
                6 => bytes.pick(WORDS)(command, bytes.int() as u32),
                7 => bytes.pick(LONGS)(command, bytes.long()),
                8 => bytes.pick(PAIRS)(command, bytes.int(), bytes.int()),
                9 => bytes.pick(TWO_TEXTS)(command, bytes.text(), bytes.text()),
                10 => bytes.pick(MAPS)(command, bytes.int() as u32, bytes.int() as u32, bytes.int() as u32),
                11 => bytes.pick(LISTS)(
                    command,
                    if bytes.byte().is_multiple_of(8) { null() } else { bytes.list().leak().as_ptr() },
                ),
                12 => forkless_command_rlimit(command, bytes.int(), bytes.long(), bytes.long()),
                13 => {
                    let ids = [7; 40];
                    forkless_command_groups(
                        command,
                        if bytes.byte().is_multiple_of(8) { null() } else { ids.as_ptr() },
                        usize::from(bytes.byte() % 41),
                    )
                }
                14 => match bytes.byte() % 4 {
                    0 => forkless_command_env_clear(command),
                    1 => forkless_command_cpu_affinity(
                        command,
                        [0, 1, bytes.int()].as_ptr(),
                        usize::from(bytes.byte() % 4),
                    ),
                    2 => forkless_command_seccomp(
                        command,
                        [[6, 0, 0, 0x7fff]; 3].as_ptr(),
                        usize::from(bytes.byte() % 4),
                    ),
                    _ => forkless_command_join(command, bytes.long(), bytes.int()),
                },
                // Opened for reading: nothing is made.
                _ => forkless_command_fd_open(command, bytes.int(), bytes.text(), 0, 0),
            }
        });
    }

    fn make(&mut self, bytes: &mut Bytes<'_>) {
        let mut place = Error { step: 0, errnum: 0, message: [0; 504] };
        let mut made: H = null_mut();
        // SAFETY: as for `set`.
        unsafe {
            match bytes.byte() % 5 {
                0 | 1 => {
                    let answer = forkless_command_new(
                        bytes.program(),
                        if bytes.byte().is_multiple_of(16) { null_mut() } else { &mut made },
                    );
                    if checked(answer) == 0 {
                        self.commands.push(made)
                    }
                }
                2 => {
                    let argv = [bytes.program(), bytes.text(), bytes.text(), null()];
                    if checked(forkless_command_new_argv(argv.as_ptr(), &mut made)) == 0 {
                        self.commands.push(made)
                    }
                }
                3 => {
                    let answer =
                        forkless_command_prepare(one(&self.commands, bytes), &mut made, error(bytes, &mut place));
                    if checked(answer) == 0 {
                        self.prepared.push(made)
                    }
                }
                _ => {
                    let which = bytes.byte() % 2;
                    if checked(NEW[usize::from(which)](&mut made)) == 0 {
                        if which == 0 { self.pipelines.push(made) } else { self.sets.push(made) }
                    }
                }
            }
        }
    }

    fn start(&mut self, bytes: &mut Bytes<'_>) {
        let mut place = Error { step: 0, errnum: 0, message: [0; 504] };
        let (mut made, mut status): (H, c_int) = (null_mut(), 0);
        let (command, prepared) = (one(&self.commands, bytes), one(&self.prepared, bytes));
        let said = error(bytes, &mut place);
        // SAFETY: as for `set`; what is made is freed once.
        unsafe {
            let answer = match bytes.byte() % 8 {
                0 | 1 => bytes.pick(STARTS)(command, &mut made, said),
                2 => bytes.pick(PREPARED_STARTS)(prepared, &mut made, said),
                3 => RUNS[0](command, &mut status, said),
                4 => PREPARED_RUNS[0](prepared, &mut status, said),
                5 | 6 => {
                    let input = [7u8; 100];
                    let how = Capture {
                        size: if bytes.byte().is_multiple_of(8) { bytes.long() as usize % 80 } else { size_of::<Capture>() },
                        flags: bytes.int(),
                        signal: bytes.int(),
                        input: if bytes.byte().is_multiple_of(4) { null() } else { input.as_ptr() },
                        input_size: usize::from(bytes.byte() % 101),
                        limit: usize::from(bytes.byte()),
                        timeout_ms: 2000,
                        grace_ms: bytes.time(),
                        linger_ms: bytes.time(),
                    };
                    let how = if bytes.byte().is_multiple_of(8) { null() } else { &raw const how };
                    let mut output: H = null_mut();
                    let answer = match bytes.byte() % 2 {
                        0 => CAPTURES[0](command, how, &mut output, said),
                        _ => PREPARED_CAPTURES[0](prepared, how, &mut output, said),
                    };
                    read_output(answer, output);
                    answer
                }
                _ => {
                    let all = [one(&self.prepared, bytes), one(&self.prepared, bytes), prepared];
                    let (mut children, mut errors) = ([null_mut(); 3], [0; 3]);
                    let answer = forkless_launch_all(all.as_ptr(), 3, children.as_mut_ptr(), errors.as_mut_ptr());
                    if checked(answer) >= 0 {
                        self.children.extend(children.into_iter().filter(|child| !child.is_null()));
                    }
                    answer
                }
            };
            if checked(answer) < 0 && !said.is_null() && (*said).errnum != 0 {
                assert_eq!((*said).errnum, -answer);
                assert!((*said).message.contains(&0));
            }
        }
        if !made.is_null() {
            self.children.push(made);
        }
    }

    fn use_child(&mut self, bytes: &mut Bytes<'_>) {
        let mut place = Error { step: 0, errnum: 0, message: [0; 504] };
        let child = one(&self.children, bytes);
        let (mut status, mut usage) = (0, [0; 10]);
        let said = error(bytes, &mut place);
        // SAFETY: as for `start`. Descriptors that are taken are ours.
        unsafe {
            match bytes.byte() % 14 {
                0 | 1 => drop(checked(bytes.pick(OF_CHILD)(child))),
                2 => drop(checked(bytes.pick(NUMBERS_OF_CHILD)(child, bytes.int()))),
                3 => drop(checked(CHILD_WAITS[0](child, &mut status, said))),
                4 => drop(checked(bytes.pick(CHILD_TIMED)(child, bytes.time(), &mut status, said))),
                5 => drop(checked(forkless_child_wait_exec(child, bytes.time(), said))),
                6 => drop(checked(forkless_child_terminate(child, bytes.int(), bytes.time(), &mut status, said))),
                7 => {
                    let mut output: H = null_mut();
                    // Whatever reads must not wait for a stopped child.
                    let _ = OF_CHILD[3](child);
                    read_output(checked(forkless_child_output(child, &mut output, said)), output);
                }
                8 => room(bytes, |text, size| forkless_child_route(child, text, size)),
                9 => drop(checked(forkless_child_usage(child, &mut usage))),
                10 => drop(checked(forkless_child_skipped(child, bytes.long() as usize, &mut place))),
                11 => close(checked(forkless_child_take_fd(child, bytes.int()))),
                12 => close(checked(forkless_child_take_handed_back(child))),
                _ => {
                    let _ = OF_CHILD[3](child);
                    checked(forkless_child_wait(child, &mut status, said));
                }
            }
        }
    }

    fn several(&mut self, bytes: &mut Bytes<'_>) {
        let mut place = Error { step: 0, errnum: 0, message: [0; 504] };
        let (pipeline, set) = (one(&self.pipelines, bytes), one(&self.sets, bytes));
        let said = error(bytes, &mut place);
        let mut status = 0;
        // SAFETY: as for `start`.
        unsafe {
            match bytes.byte() % 10 {
                0 => drop(checked(forkless_pipeline_command(pipeline, one(&self.commands, bytes), said))),
                1 => drop(checked(forkless_pipeline_prepared(pipeline, one(&self.prepared, bytes)))),
                2 => drop(checked(forkless_pipeline_pipefail(pipeline, bytes.int()))),
                3 => {
                    let mut statuses = vec![0; usize::from(bytes.byte() % 9)];
                    checked(forkless_pipeline_status(
                        pipeline,
                        statuses.len(),
                        statuses.as_mut_ptr(),
                        &mut status,
                        said,
                    ));
                }
                4 => {
                    let mut children = vec![null_mut(); usize::from(bytes.byte() % 9)];
                    let answer =
                        checked(forkless_pipeline_spawn(pipeline, children.len(), children.as_mut_ptr(), said));
                    self.children.extend(children.into_iter().take(answer.max(0) as usize));
                }
                5 => {
                    let child = taken(&mut self.children, bytes);
                    let mut key = 0;
                    if checked(forkless_waitset_insert(set, child, null_mut(), &mut key, said)) < 0 {
                        self.children.push(child);
                    } else {
                        self.keys.push(key);
                    }
                }
                6 => {
                    let mut child = null_mut();
                    let key = if self.keys.is_empty() { bytes.long() } else { bytes.pick(&self.keys) };
                    if checked(forkless_waitset_remove(set, key, &mut child)) >= 0 {
                        self.children.push(child)
                    }
                }
                7 => {
                    let key = if self.keys.is_empty() { bytes.long() } else { bytes.pick(&self.keys) };
                    checked(forkless_waitset_signal(set, key, bytes.int()));
                }
                8 => {
                    let mut ended = Ended { child: null_mut(), value: null_mut(), status: 0, error: 0 };
                    if checked(forkless_waitset_wait(set, bytes.time(), &mut ended, said)) > 0 {
                        self.children.push(ended.child)
                    }
                }
                _ => {
                    let which = usize::from(bytes.byte() % 3);
                    checked(COUNTS[which](if which == 0 { pipeline } else { set }));
                }
            }
        }
        self.children.retain(|child| !child.is_null());
    }
}

fn close(fd: c_int) {
    if fd >= 0 {
        // SAFETY: it has become ours.
        unsafe { libc::close(fd) };
    }
}

/// Everything that an output says is there.
fn read_output(answer: c_int, output: H) {
    if answer < 0 {
        return;
    }
    // SAFETY: an output of the library's, freed once.
    unsafe {
        let found = &*output.cast::<Output>();
        for (start, size) in [(found.out, found.out_size), (found.err, found.err_size)] {
            if !start.is_null() {
                std::hint::black_box(
                    std::slice::from_raw_parts(start, size).iter().map(|&byte| u64::from(byte)).sum::<u64>(),
                );
            }
        }
        forkless_output_free(output);
    }
}

/// Where a child has panicked, in memory that it shares with this process: its line, and the end of the file's name.
#[repr(C)]
struct Panic {
    line: AtomicU32,
    size: AtomicUsize,
    file: UnsafeCell<[u8; 200]>,
}

/// Notes panics of children, whose standard error may be closed. They would end them as a signal of somebody else's does.
fn note_panics() -> &'static Panic {
    // SAFETY: a new mapping of zeroes, which are a valid note, for ever.
    let noted = unsafe {
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let place = libc::mmap(null_mut(), size_of::<Panic>(), libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        assert_ne!(place, libc::MAP_FAILED);
        &*place.cast::<Panic>()
    };
    let (me, file) = (std::process::id(), noted.file.get() as usize);
    let (line, size) = (&noted.line, &noted.size);
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if std::process::id() == me {
            return usual(info);
        }
        if let Some(place) = info.location() {
            let name = place.file().as_bytes();
            let name = &name[name.len().saturating_sub(200)..];
            // SAFETY: so much room; this process reads it when the child has ended.
            unsafe { (file as *mut u8).copy_from_nonoverlapping(name.as_ptr(), name.len()) };
            size.store(name.len(), Release);
            line.store(place.line(), Release);
        }
        // SAFETY: ends the child.
        unsafe { libc::_exit(126) };
    }));
    noted
}

/// The one note of this process.
struct Noted(&'static Panic);

// SAFETY: atomics, and bytes that are read after them.
unsafe impl Sync for Noted {}
// SAFETY: as above.
unsafe impl Send for Noted {}

static NOTED: LazyLock<Noted> = LazyLock::new(|| Noted(note_panics()));

/// Ends this process if a child has panicked. Not by a panic: the child's may have left this thread, whose memory it shares, in the
/// middle of one.
fn look_at_children() {
    let Noted(noted) = &*NOTED;
    let line = noted.line.load(Acquire);
    if line != 0 {
        // SAFETY: written before the line.
        let file = unsafe { &(&*noted.file.get())[..noted.size.load(Acquire)] };
        eprintln!("a child has panicked: {}:{line}", String::from_utf8_lossy(file));
        std::process::abort();
    }
}

fuzz_target!(|bytes: &[u8]| {
    LazyLock::force(&NOTED);
    let mut bytes = Bytes(bytes);
    let mut world = World::default();
    let mut left = 40;
    while !bytes.0.is_empty() && left > 0 {
        left -= 1;
        match bytes.byte() % 12 {
            0..3 => world.make(&mut bytes),
            3..6 => world.set(&mut bytes),
            6 | 7 => world.start(&mut bytes),
            8 => world.use_child(&mut bytes),
            9 => world.several(&mut bytes),
            10 => room(&mut bytes, |text, size| {
                // SAFETY: a live handle or null, and so much room.
                unsafe { forkless_prepared_steps(world.prepared.first().copied().unwrap_or(null_mut()), text, size) }
            }),
            _ => {
                let step = bytes.int();
                // SAFETY: so much room.
                room(&mut bytes, |text, size| unsafe { forkless_step_words(step, text, size) });
            }
        }
    }
    // Nothing goes on beyond its input.
    for &child in &world.children {
        // SAFETY: live handles.
        unsafe { OF_CHILD[3](child) };
    }
    world.free();
    // SAFETY: no arguments.
    unsafe { forkless_reap_orphans() };
    look_at_children();
});

//! The methods in C: calls into `c/contestants.c`.

use std::{
    ffi::{c_char, c_int},
    io,
    os::unix::process::ExitStatusExt,
    process::ExitStatus,
    ptr,
};

use anyhow::{Context, Result};

use super::{
    launcher::{Job, Launcher},
    program::{Program, check},
    statistics::Sample,
    wishes::CWishes,
};

/// `struct bench_plan` of `c/contestants.h`.
#[repr(C)]
pub(crate) struct Plan {
    path: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
    shell_command: *const c_char,
    pipes: c_int,
    wishes: *const CWishes,
    output: u64,
    library: *const Library,
}

/// `struct bench_library` of `c/contestants.h`: functions of libc or of forkless, so that the same code times both.
#[repr(C)]
pub(crate) struct Library {
    spawn: Option<unsafe extern "C" fn(*const c_char, *const *const c_char, *const *const c_char) -> libc::pid_t>,
    spawnp: Option<unsafe extern "C" fn(*const c_char, *const *const c_char, *const *const c_char) -> libc::pid_t>,
    system: unsafe extern "C" fn(*const c_char) -> c_int,
    popen: unsafe extern "C" fn(*const c_char, *const c_char) -> *mut libc::FILE,
    pclose: unsafe extern "C" fn(*mut libc::FILE) -> c_int,
}

/// libc's functions.
pub(crate) const LIBC: Library =
    Library { spawn: None, spawnp: None, system: libc::system, popen: libc::popen, pclose: libc::pclose };
/// The functions of forkless's C library.
pub(crate) const OURS: Library = Library {
    spawn: Some(forkless_spawn),
    spawnp: Some(forkless_spawnp),
    system: forkless_system,
    popen: forkless_popen,
    pclose: forkless_pclose,
};

// Declared as in `forkless.h`. The library is linked statically.
use forkless_capi as _;
unsafe extern "C" {
    fn forkless_spawn(path: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> libc::pid_t;
    fn forkless_spawnp(file: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> libc::pid_t;
    fn forkless_system(command: *const c_char) -> c_int;
    fn forkless_popen(command: *const c_char, mode: *const c_char) -> *mut libc::FILE;
    fn forkless_pclose(stream: *mut libc::FILE) -> c_int;
}

/// `struct bench_times` of `c/contestants.h`.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Times {
    held: u64,
    total: u64,
}

/// A function that launches with one method.
pub(crate) type NativeLaunch = unsafe extern "C" fn(*const Plan, *mut Times) -> c_int;

unsafe extern "C" {
    pub(crate) fn bench_floor(plan: *const Plan, times: *mut Times) -> c_int;
    pub(crate) fn bench_output(plan: *const Plan, times: *mut Times) -> c_int;
    pub(crate) fn bench_fork(plan: *const Plan, times: *mut Times) -> c_int;
    pub(crate) fn bench_posix_spawn(plan: *const Plan, times: *mut Times) -> c_int;
    pub(crate) fn bench_closefrom(plan: *const Plan, times: *mut Times) -> c_int;
    pub(crate) fn bench_has_closefrom() -> c_int;
    pub(crate) fn bench_spawn(plan: *const Plan, times: *mut Times) -> c_int;
    pub(crate) fn bench_system(plan: *const Plan, times: *mut Times) -> c_int;
    pub(crate) fn bench_popen(plan: *const Plan, times: *mut Times) -> c_int;
}

/// A method written in C.
pub(crate) struct Native<'p> {
    function: NativeLaunch,
    library: &'static Library,
    program: &'p Program,
    argv: Vec<*const c_char>,
    envp: Vec<*const c_char>,
    pipes: u8,
    wishes: Option<CWishes>,
    output: u64,
}

impl<'p> Native<'p> {
    pub(crate) fn new(function: NativeLaunch, library: &'static Library, job: &Job<'p>) -> Self {
        let program = job.program;
        let terminated = |strings: &[std::ffi::CString]| -> Vec<*const c_char> {
            strings.iter().map(|s| s.as_ptr()).chain([ptr::null()]).collect()
        };
        Self {
            function,
            library,
            program,
            argv: terminated(&program.c_argv),
            envp: terminated(&program.c_envp),
            pipes: job.condition.pipes,
            wishes: job.wishes.for_c(),
            output: job.condition.output,
        }
    }
}

impl Launcher for Native<'_> {
    fn launch(&mut self) -> Result<Sample> {
        let plan = Plan {
            path: self.program.c_path.as_ptr(),
            argv: self.argv.as_ptr(),
            envp: self.envp.as_ptr(),
            shell_command: self.program.shell_command.as_ptr(),
            pipes: c_int::from(self.pipes),
            wishes: self.wishes.as_ref().map_or(ptr::null(), ptr::from_ref),
            output: self.output,
            library: self.library,
        };
        let mut times = Times::default();
        // SAFETY: all pointers are to live structs of the C layout; the strings belong to `program` and to the wishes of
        // the job, which outlive `self`, and both vectors end with a null pointer (`new`).
        let answer = unsafe { (self.function)(&plan, &mut times) };
        if answer < 0 {
            return Err(io::Error::from_raw_os_error(-answer)).context("not launched");
        }
        check(ExitStatus::from_raw(answer))?;
        Ok(Sample { held_ns: times.held, total_ns: times.total })
    }
}

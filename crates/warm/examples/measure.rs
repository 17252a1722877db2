//! Measures warm launches beside cold ones: `posix_spawn(3)` in its fastest form (file actions made once, `/dev/null`
//! opened once for three streams, no other setting), forkless, and a template of forkless. Each round launches by all
//! three in turn, from the request to the reaped child. Prints medians in µs, their ratios to `posix_spawn`, the page
//! faults of the child (cold and warm), and the private memory of the template.
//!
//! ```text
//! cargo xtask warm target/warm
//! cargo run --release -p forkless-warm --example measure -- target/warm/libforkless_warm.so [ROUNDS [PROGRAM ARGS...]]
//! ```
//!
//! `large` before the library: warm launches of `/bin/true` by this process as it is, with 1 GiB of memory that has been
//! written to, and with 15,000 descriptors besides: medians of `launch` and of the whole.
//!
//! ```text
//! cargo run --release -p forkless-warm --example measure -- large target/warm/libforkless_warm.so [ROUNDS]
//! ```
//!
//! With an installed command instead of the library, measures the runner: a loop of `posix_spawn(3)` of `/bin/true`, and
//! `forkless parallel` with as many jobs, cold and warm, in turn. Prints medians of jobs per second, and CPU for a job.
//!
//! ```text
//! cargo run --release -p forkless-warm --example measure -- runner PREFIX/bin/forkless [ROUNDS [JOBS]]
//! ```

use forkless::warm::Warm;
use forkless::{Command, Route, Stdio};
use forkless_core::sys;
use rustix::process::{Pid, WaitOptions, waitpid};
use std::ffi::{CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};

/// Short programs, with arguments with which they do little.
const PROGRAMS: &[(&str, &[&str])] = &[
    ("/bin/true", &[]),
    ("/bin/dash", &["-c", ":"]),
    ("/usr/bin/jq", &["--version"]),
    ("/usr/bin/lua5.4", &["-v"]),
    ("/bin/sed", &["-n", "1p", "/etc/hostname"]),
    ("/usr/bin/git", &["--version"]),
    ("/bin/ls", &["/"]),
    ("/bin/grep", &["-c", "root", "/etc/passwd"]),
    ("/bin/bash", &["-c", ":"]),
    ("/usr/bin/perl", &["-e", "1"]),
    ("/usr/bin/python3", &["-S", "-c", "1"]),
    ("/usr/bin/curl", &["--version"]),
];

unsafe extern "C" {
    fn posix_spawn(
        pid: *mut c_int,
        path: *const c_char,
        actions: *const Actions,
        attributes: *const c_void,
        argv: *const *mut c_char,
        envp: *const *mut c_char,
    ) -> c_int;
    fn posix_spawn_file_actions_init(actions: *mut Actions) -> c_int;
    fn posix_spawn_file_actions_addopen(
        actions: *mut Actions,
        fd: c_int,
        path: *const c_char,
        flags: c_int,
        mode: u32,
    ) -> c_int;
    fn posix_spawn_file_actions_adddup2(actions: *mut Actions, fd: c_int, to: c_int) -> c_int;
    static environ: *const *mut c_char;
}

/// `posix_spawn_file_actions_t`, with room for every libc's.
#[repr(C, align(16))]
struct Actions([u64; 32]);

/// A program for `posix_spawn(3)`.
struct Stock {
    argv: Vec<CString>,
    pointers: Vec<*mut c_char>,
    actions: Box<Actions>,
}

impl Stock {
    fn new(program: &str, args: &[&str]) -> Self {
        let argv: Vec<_> = [&[program], args].concat().iter().map(|&arg| CString::new(arg).expect("no NUL")).collect();
        let pointers = argv.iter().map(|arg| arg.as_ptr().cast_mut()).chain([null_mut()]).collect();
        let mut actions = Box::new(Actions([0; 32]));
        const O_RDWR: c_int = 2;
        // SAFETY: libc fills its structure, and copies the path.
        unsafe {
            posix_spawn_file_actions_init(&mut *actions);
            posix_spawn_file_actions_addopen(&mut *actions, 0, c"/dev/null".as_ptr(), O_RDWR, 0);
            posix_spawn_file_actions_adddup2(&mut *actions, 0, 1);
            posix_spawn_file_actions_adddup2(&mut *actions, 0, 2);
        }
        Self { argv, pointers, actions }
    }

    fn run(&self) {
        let mut pid = 0;
        // SAFETY: all strings and vectors live as long as this, and the vectors end in null.
        let error = unsafe {
            posix_spawn(&mut pid, self.argv[0].as_ptr(), &*self.actions, null(), self.pointers.as_ptr(), environ)
        };
        assert_eq!(error, 0, "posix_spawn");
        waitpid(Pid::from_raw(pid), WaitOptions::empty()).expect("its end");
    }
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6
}

/// The private memory of a process, in KiB.
fn private(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let of = |label: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(label))?;
        line.trim().split(' ').next()?.parse::<u64>().ok()
    };
    Some(of("Private_Dirty:")? + of("Private_Clean:")?)
}

/// The CPU time of this process and of its children that have ended.
fn cpu() -> Duration {
    const GETRUSAGE: u32 = 98;
    const RUSAGE_SELF: usize = 0;
    const RUSAGE_CHILDREN: usize = -1isize as usize;
    let of = |whose: usize| {
        let mut usage = [0i64; 18];
        // SAFETY: the kernel writes a struct rusage of 18 words.
        unsafe { sys::syscall(GETRUSAGE, [whose, usage.as_mut_ptr() as usize, 0, 0, 0, 0]) }.expect("usage");
        Duration::from_micros(((usage[0] + usage[2]) * 1_000_000 + usage[1] + usage[3]) as u64)
    };
    of(RUSAGE_SELF) + of(RUSAGE_CHILDREN)
}

/// A loop of launches, and the runner with as many jobs.
fn runner(mut args: impl Iterator<Item = String>) {
    let forkless = args.next().expect("the path of an installed forkless");
    let rounds: usize = args.next().map_or(5, |rounds| rounds.parse().expect("a number of rounds"));
    let jobs: usize = args.next().map_or(10_000, |jobs| jobs.parse().expect("a number of jobs"));
    let place = tempfile::tempdir().expect("a directory");
    let input = place.path().join("input");
    let lines: String = (1..=jobs).map(|job| format!("{job}\n")).collect();
    std::fs::write(&input, lines).expect("a file");
    let run = |words: &[&str]| {
        let mut command = std::process::Command::new(&forkless);
        command.args(["parallel", "--plain", "--summary"]).args(words).arg("-a").arg(&input).arg("/bin/true");
        // The loop's programs have an empty environment: with a locale, `true` reads its files.
        command.env_clear().env("PARALLEL_SHELL", "/bin/sh");
        let output = command.output().expect("forkless parallel");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stderr).lines().next_back().unwrap_or_default().to_owned()
    };
    let (stock, mut launches) = (Stock::new("/bin/true", &[]), String::new());
    let names = ["posix_spawn, one after the other", "forkless parallel", "forkless parallel --warm"];
    let mut found = vec![Vec::new(); names.len()];
    for _ in 0..rounds {
        for (which, found) in found.iter_mut().enumerate() {
            let (start, before) = (Instant::now(), cpu());
            match which {
                0 => (0..jobs).for_each(|_| stock.run()),
                1 => drop(run(&[])),
                _ => launches = run(&["--warm"]),
            }
            found.push((start.elapsed(), cpu() - before));
        }
    }
    for (name, found) in names.iter().zip(found) {
        let (times, cpu): (Vec<_>, Vec<_>) = found.into_iter().unzip();
        let each = 1.0 / jobs as f64;
        println!(
            "{name:<34} {:>7.0} jobs/s, {:>5.0} µs of CPU for a job",
            1e6 / (median(times) * each),
            median(cpu) * each
        );
    }
    println!("{launches}");
}

/// Warm launches by this process while it grows.
fn large(mut args: impl Iterator<Item = String>) -> std::io::Result<()> {
    let library = args.next().expect("the path of libforkless_warm.so");
    let rounds: usize = args.next().map_or(2_000, |rounds| rounds.parse().expect("a number of rounds"));
    // SAFETY: this process has one thread.
    unsafe { std::env::remove_var("LD_LIBRARY_PATH") };
    let mut options = forkless::warm::WarmOptions::new();
    let warm = options.library(std::fs::canonicalize(library)?).launches(u32::MAX).open()?;
    let plan = Command::new("/bin/true").stdout(Stdio::null()).pidfd(false).warm(&warm).prepare()?;
    warm.start(&plan)?;
    let measure = |name: &str| -> std::io::Result<()> {
        let (mut held, mut total) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let start = Instant::now();
            let mut child = plan.launch()?;
            held.push(start.elapsed());
            child.wait()?;
            total.push(start.elapsed());
            assert!(matches!(child.route(), Route::Warm), "{:?}", child.cold_reason());
        }
        println!("{name:<28} launch {:>5.0} µs, in all {:>5.0} µs", median(held), median(total));
        Ok(())
    };
    measure("small")?;
    let memory = std::hint::black_box(vec![1u8; 1 << 30]);
    measure("1 GiB")?;
    rustix::process::setrlimit(
        rustix::process::Resource::Nofile,
        rustix::process::Rlimit { current: Some(16_000), maximum: Some(16_000) },
    )?;
    let files: Vec<_> = (0..15_000).map(|_| std::fs::File::open("/dev/null")).collect::<Result<_, _>>()?;
    measure("1 GiB, 15,000 descriptors")?;
    drop((memory, files));
    measure("small again")
}

fn main() -> std::io::Result<()> {
    let mut args = std::env::args().skip(1).peekable();
    if args.next_if_eq("large").is_some() {
        return large(args);
    }
    if args.next_if_eq("runner").is_some() {
        runner(args);
        return Ok(());
    }
    let library = args.next().expect("the path of libforkless_warm.so");
    let rounds: usize = args.next().map_or(300, |rounds| rounds.parse().expect("a number of rounds"));
    let own: Vec<_> = args.collect();
    let own: Vec<&str> = own.iter().map(String::as_str).collect();
    let own = own.split_first().map(|(&program, args)| vec![(program, args)]);
    // Cargo sets this variable, and a variable for the loader makes every launch cold.
    // SAFETY: this process has one thread.
    unsafe { std::env::remove_var("LD_LIBRARY_PATH") };
    println!(
        "{:<28} {:>11} {:>9} {:>9} {:>7} {:>7} {:>11} {:>9}",
        "program", "posix_spawn", "forkless", "warm", "ratio", "ratio", "page faults", "template"
    );
    for (program, args) in own.unwrap_or_else(|| PROGRAMS.to_vec()) {
        if !Path::new(program).exists() {
            continue;
        }
        let warm = Warm::new(std::fs::canonicalize(&library)?)?;
        let mut command = Command::new(program);
        let prepared = command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).prepare()?;
        let stock = Stock::new(program, args);
        let (mut by_std, mut cold, mut by_template) = (Vec::new(), Vec::new(), Vec::new());
        let (mut reason, mut faults) = (None, [0; 2]);
        for _ in 0..rounds {
            let start = Instant::now();
            stock.run();
            by_std.push(start.elapsed());
            let start = Instant::now();
            let mut child = prepared.spawn()?;
            child.wait()?;
            cold.push(start.elapsed());
            faults[0] = child.usage().map_or(0, |usage| usage.minor_faults);
            let start = Instant::now();
            let mut child = warm.spawn(&prepared)?;
            child.wait()?;
            // The few launches that start a template are cold, and are not counted.
            match child.route() {
                Route::Warm => {
                    by_template.push(start.elapsed());
                    faults[1] = child.usage().map_or(0, |usage| usage.minor_faults);
                }
                _ => reason = child.cold_reason().map(str::to_owned),
            }
        }
        let name = format!("{} {}", program.rsplit('/').next().unwrap_or(program), args.join(" "));
        if by_template.len() < rounds / 2 {
            println!("{name:<28} cold: {}", reason.unwrap_or_default());
            continue;
        }
        let memory = warm.templates().first().and_then(|&pid| private(pid)).unwrap_or(0);
        let [stock, cold, by_template] = [by_std, cold, by_template].map(median);
        println!(
            "{name:<28} {stock:>11.0} {cold:>9.0} {by_template:>9.0} {:>7.2} {:>7.2} {:>5} {:>5} {memory:>5} KiB",
            cold / stock,
            by_template / stock,
            faults[0],
            faults[1]
        );
    }
    Ok(())
}

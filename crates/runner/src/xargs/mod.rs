//! `forkless xargs`: commands from arguments on standard input, as POSIX.1-2024 and GNU findutils describe them.

mod arguments;
mod options;
mod plain;
mod pack;
mod read;

use std::{
    ffi::OsString,
    fs::File,
    io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    process::ExitCode,
};

use forkless_core::sys::{getrlimit, uapi};
use forkless_jobs::{Control, Ended, Ending, Events, Flow, Input, Options, Standard};
use signal_hook::consts::{SIGUSR1, SIGUSR2};

pub use arguments::arguments;
pub use options::XargsOptions;
use pack::{Around, Packer, Packing};
pub use plain::plain;
use read::Separator;

const ERROR: u8 = 1;
const FAILED: u8 = 123;
const EXITED_255: u8 = 124;
const SIGNALLED: u8 = 125;
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

/// The length of a command, if it is not limited otherwise.
const DEFAULT_CHARS: usize = 128 * 1024;

/// Runs the commands. `remedy` ends the message for a command that cannot be started.
pub fn main(options: XargsOptions, remedy: Remedy) -> ExitCode {
    match run(options, remedy) {
        Ok(code) => ExitCode::from(code),
        Err(why) => {
            say(&why);
            ExitCode::from(ERROR)
        }
    }
}

fn say(words: &str) {
    crate::message::say(format_args!("xargs: {words}"));
}

/// What to do about a launch that failed: `; ` and a text, or nothing.
pub type Remedy = fn(&io::Error) -> String;

fn run(mut options: XargsOptions, remedy: Remedy) -> Result<u8, String> {
    let limits = Limits::now();
    let packing = packing(&options, &limits)?;
    if options.show_limits {
        limits.show(packing.max_chars);
    }
    let input: OwnedFd = match &options.arg_file {
        Some(path) => File::open(path).map_err(|error| format!("cannot open input file {path:?}: {error}"))?.into(),
        None => {
            let stdin = rustix::stdio::stdin().try_clone_to_owned();
            stdin.map_err(|error| format!("standard input: {error}"))?
        }
    };
    let slot_var = options.process_slot_var.take();
    if slot_var.as_ref().is_some_and(|name| name.is_empty() || name.as_bytes().contains(&b'=')) {
        return Err("--process-slot-var takes the name of a variable, without '='".to_owned());
    }
    let around = Around {
        verbose: options.verbose,
        interactive: options.interactive,
        open_tty: options.open_tty,
        keeps_stdin: options.arg_file.is_some(),
        slot_var,
    };
    let words =
        if options.words.is_empty() { vec![OsString::from("echo")] } else { std::mem::take(&mut options.words) };
    let slots = match options.max_procs {
        None => 1,
        Some(0) => MOST_SLOTS,
        Some(count) => (count as usize).min(MOST_SLOTS),
    };
    let gives_stdin = around.keeps_stdin;
    let mut source = Packer::new(Input::new(input), words, packing, around);
    let mut outcome = Outcome { code: 0, remedy };
    let mut settings = Options::new(slots);
    let _warm = options.warm.then(|| crate::warm::install(&mut settings)).transpose()?;
    settings.kill_tree = options.kill_tree;
    settings.stdin_is_null = !gives_stdin && crate::no_input::replace_stdin();
    settings.control = Some(control().map_err(|error| error.to_string())?);
    let done = forkless_jobs::run(settings, &mut source, &mut outcome, &mut Standard::new());
    source.give_back();
    let summary = done.map_err(|error| error.to_string())?;
    for error in &summary.errors {
        say(&error.to_string());
    }
    Ok(if summary.errors.is_empty() { outcome.code } else { ERROR })
}

/// The number of slots for `-P 0`, and the most for `-P`.
const MOST_SLOTS: usize = 1 << 22;

/// SIGUSR1 adds a slot, SIGUSR2 takes one away.
fn control() -> io::Result<Control> {
    let control = Control::new()?;
    for (signal, more) in [(SIGUSR1, 1), (SIGUSR2, -1)] {
        let control = control.clone();
        // SAFETY: the function stores a number and writes to an eventfd, which is async-signal-safe.
        unsafe { signal_hook::low_level::register(signal, move || control.add_slots(more)) }?;
    }
    Ok(control)
}

/// The exit code, from the ends of the commands.
struct Outcome {
    code: u8,
    remedy: Remedy,
}

impl Events for Outcome {
    fn finished(&mut self, ended: &Ended) -> Flow {
        let (code, flow) = match &ended.ending {
            Ending::Exited(0) => return Flow::Continue,
            Ending::Exited(255) => {
                say("a command exited with status 255; stopping");
                (EXITED_255, Flow::Soon)
            }
            Ending::Exited(_) => (FAILED, Flow::Continue),
            Ending::Killed(signal) => {
                say(&format!("a command was terminated by signal {signal}; stopping"));
                (SIGNALLED, Flow::Soon)
            }
            Ending::NotStarted(error) => {
                say(&format!("{error}{}", (self.remedy)(error)));
                (if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_RUN }, Flow::Soon)
            }
            Ending::Lost(error) => {
                say(&error.to_string());
                (ERROR, Flow::Soon)
            }
        };
        // The end that stopped the run decides; of several ones the first.
        if self.code == 0 || self.code == FAILED {
            self.code = code;
        }
        flow
    }
}

/// The kernel's limits of a command.
pub(crate) struct Limits {
    environment: usize,
    variables: usize,
    all: usize,
}

impl Limits {
    pub(crate) fn now() -> Self {
        /// The kernel takes no more than three quarters of its own limit of the stack, 8 MiB.
        const MOST: u64 = 6 << 20;
        let stack = getrlimit(uapi::RLIMIT_STACK).map_or(MOST, |[soft, _]| soft / 4);
        let all = usize::try_from(stack.clamp(DEFAULT_CHARS as u64, MOST)).unwrap_or(DEFAULT_CHARS);
        let (mut environment, mut variables) = (0, 0);
        for (name, value) in std::env::vars_os() {
            environment += name.len() + value.len() + 2;
            variables += 1;
        }
        Self { environment, variables, all }
    }

    /// The longest command, with the room that POSIX demands.
    fn most(&self) -> usize {
        self.all.saturating_sub(self.environment + 2048)
    }

    /// The same for lengths that count a pointer for each argument: the pointers of the variables are subtracted.
    pub(crate) fn with_pointers(&self) -> usize {
        self.most().saturating_sub((self.variables + 1) * size_of::<usize>())
    }

    fn show(&self, used: usize) {
        let Self { environment, all, .. } = self;
        eprintln!("Your environment variables take up {environment} bytes");
        eprintln!("POSIX upper limit on argument length (this system): {}", all.saturating_sub(2048));
        eprintln!("POSIX smallest allowable upper limit on argument length (all systems): 4096");
        eprintln!("Maximum length of command we could actually use: {}", self.most());
        eprintln!("Size of command buffer we are actually using: {used}");
        eprintln!("Maximum parallelism (--max-procs must be no greater): {MOST_SLOTS}");
    }
}

fn packing(options: &XargsOptions, limits: &Limits) -> Result<Packing, String> {
    let replace = options.replace.as_ref().or(options.replace_optional.as_ref());
    let replace = replace.map(|text| text.as_bytes().to_vec());
    if replace.as_ref().is_some_and(Vec::is_empty) {
        return Err("-I: the text to replace must not be empty".to_owned());
    }
    let separator = match (&options.delimiter, options.null) {
        (Some(text), _) => Separator::Byte(delimiter(text.as_bytes())?),
        (None, true) => Separator::Byte(0),
        (None, false) if replace.is_some() => Separator::Lines,
        (None, false) => Separator::Blanks,
    };
    let most = limits.most();
    let max_chars = match options.max_chars.map(|count| usize::try_from(count).unwrap_or(usize::MAX)) {
        Some(count) if count > most => {
            say(&format!("the value of -s should be at most {most}"));
            most
        }
        Some(count) => count,
        None => DEFAULT_CHARS.min(most),
    };
    let end = options.end.as_ref().or(options.eof_optional.as_ref());
    let max_lines = options.max_lines.or(options.lines_optional);
    Ok(Packing {
        separator,
        end: end.map(|text| text.as_bytes().to_vec()).filter(|text| !text.is_empty()),
        replace,
        max_args: options.max_args,
        max_lines,
        max_chars,
        longest: longest(),
        with_pointers: limits.with_pointers(),
        exit_if_exceeded: options.exit || max_lines.is_some(),
        runs_if_empty: !options.no_run_if_empty,
    })
}

/// The kernel's limit for one argument: MAX_ARG_STRLEN, which counts the NUL byte.
fn longest() -> usize {
    32 * rustix::param::page_size() - 1
}

/// The byte of `-d`: itself, or an escape sequence.
fn delimiter(text: &[u8]) -> Result<u8, String> {
    let wrong =
        || Err(format!("{:?} is not a delimiter: one byte, or \\n, \\x2c, \\054", String::from_utf8_lossy(text)));
    match text {
        [byte] => Ok(*byte),
        [b'\\', b'x', digits @ ..] => {
            let digits = std::str::from_utf8(digits).unwrap_or_default();
            u8::from_str_radix(digits, 16).or_else(|_| wrong())
        }
        [b'\\', digits @ ..] if digits[0].is_ascii_digit() => {
            let digits = std::str::from_utf8(digits).unwrap_or_default();
            u8::from_str_radix(digits, 8).or_else(|_| wrong())
        }
        [b'\\', letter] => match letter {
            b'a' => Ok(7),
            b'b' => Ok(8),
            b'f' => Ok(12),
            b'n' => Ok(b'\n'),
            b'r' => Ok(b'\r'),
            b't' => Ok(b'\t'),
            b'v' => Ok(11),
            b'\\' => Ok(b'\\'),
            _ => wrong(),
        },
        _ => wrong(),
    }
}

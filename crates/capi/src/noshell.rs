//! The functions of popen_noshell, under their own names: a separate library, `libpopen_noshell.so`, with
//! `popen_noshell.h`.
//!
//! Names, numbers and the layout of the structure are those that its users have compiled against. The implementation is
//! that of [`stream`].

use crate::boundary::as_libc;
use crate::error::{Failure, bad};
use crate::handle::{list, text};
use crate::simple::like_libc;
use crate::stream::{self, End, Running, plug, set_stderr};
use forkless::{Child, Command, Launcher, Stdio};
use libc::{FILE, c_char, c_int, c_void, pid_t};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, Ordering};

mod vmfork;

const MODE_FORK: c_int = 1;
const MODE_POSIX_SPAWN: c_int = 2;

/// The mode. Every unknown number means clone, the default, 0.
static MODE: AtomicI32 = AtomicI32::new(0);

/// `struct popen_noshell_pass_to_pclose`.
#[repr(C)]
struct PassToPclose {
    fp: *mut FILE,
    pid: pid_t,
    /// 0: nothing is allocated for the child, so the two pointers below are null.
    free_clone_mem: c_int,
    stack: *mut c_void,
    func_args: *mut c_void,
}

impl PassToPclose {
    const NONE: Self = Self { fp: null_mut(), pid: 0, free_clone_mem: 0, stack: null_mut(), func_args: null_mut() };
}

/// A program to run.
struct Program<'a> {
    file: &'a OsStr,
    /// argv, including argv[0].
    argv: &'a [&'a OsStr],
    end: End,
    stderr: c_int,
}

impl Program<'_> {
    fn start(&self) -> Result<Child, Failure> {
        let (name, args) = self.argv.split_first().ok_or(bad("the list of arguments is empty"))?;
        if self.file.is_empty() {
            return Err(Failure::Refused(libc::ENOENT, "the program's name is empty"));
        }
        let mut command = Command::new(self.file);
        self.set(command.arg0(name).args(args))?;
        let error = match command.spawn() {
            Ok(child) => return Ok(child),
            Err(error) => error,
        };
        match self.script(&error) {
            Some(script) => {
                let mut shell = Command::new("/bin/sh");
                self.set(shell.arg(script).args(args))?;
                Ok(shell.spawn()?)
            }
            None => Err(error.into()),
        }
    }

    /// The file to run with the shell if the error is ENOEXEC, as `execvp(3)` does.
    fn script(&self, error: &io::Error) -> Option<OsString> {
        forkless::Error::of(error).filter(|error| error.errno() == Some(libc::ENOEXEC))?;
        if self.file.as_bytes().contains(&b'/') {
            return Some(self.file.into());
        }
        let path = std::env::var_os("PATH").unwrap_or("/bin:/usr/bin".into());
        let mut files = std::env::split_paths(&path).map(|directory| directory.join(self.file));
        files.find(|file| is_executable(file)).map(Into::into)
    }

    fn set(&self, command: &mut Command) -> Result<(), Failure> {
        like_libc(command).inherit_all(true);
        match self.end {
            End::Reads => command.stdin(Stdio::null()),
            End::Writes => command.stdout(Stdio::null()),
        };
        set_stderr(command, self.stderr)?;
        plug(command, self.end);
        match MODE.load(Ordering::Relaxed) {
            MODE_FORK => _ = command.launcher(Launcher::Fork),
            MODE_POSIX_SPAWN => _ = command.launcher(Launcher::PosixSpawn),
            _ => {}
        }
        Ok(())
    }

    /// Starts the program, and stores in `place` what must be closed.
    fn open(&self, place: &mut PassToPclose) -> Result<*mut FILE, Failure> {
        let child = self.start()?;
        let pid = child.id() as pid_t;
        let fp = stream::open(Running::Program(child), self.end)?;
        *place = PassToPclose { fp, pid, ..PassToPclose::NONE };
        Ok(fp)
    }
}

fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
}

/// Clears the caller's structure for what must be closed, until something has been started.
///
/// # Safety
/// `place` is null or a valid pointer.
unsafe fn cleared<'a>(place: *mut PassToPclose) -> Result<&'a mut PassToPclose, Failure> {
    if place.is_null() {
        return Err(bad("the pointer to the result is null"));
    }
    // SAFETY: the caller's contract. The memory may be uninitialized, so it is written before there is a reference to
    // it.
    unsafe {
        place.write(PassToPclose::NONE);
        Ok(&mut *place)
    }
}

/// Splits a line into words as the original does: at blanks and tabs, except between quotation marks of either kind,
/// which are removed. The characters below are refused, also between quotation marks. Patterns are not expanded.
fn split(line: &[u8]) -> Result<Vec<OsString>, Failure> {
    let mut words = Vec::new();
    let (mut word, mut quote) = (None::<Vec<u8>>, None);
    for &byte in line {
        match (byte, quote) {
            (b'!' | b'\\' | b'$' | b'`' | b'\n' | b'|' | b'&' | b';' | b'(' | b')' | b'<' | b'>', _) => {
                return Err(bad("the line has a character that needs a shell"));
            }
            (b' ' | b'\t', None) => words.extend(word.take()),
            (b'\'' | b'"', None) => {
                quote = Some(byte);
                word.get_or_insert_default();
            }
            (byte, Some(mark)) if byte == mark => quote = None,
            (byte, _) => word.get_or_insert_default().push(byte),
        }
    }
    if quote.is_some() {
        return Err(bad("the line has an unterminated quotation"));
    }
    words.extend(word);
    if words.is_empty() {
        return Err(bad("the line is empty"));
    }
    Ok(words.into_iter().map(OsString::from_vec).collect())
}
#[unsafe(no_mangle)]
unsafe extern "C" fn popen_noshell(
    file: *const c_char,
    argv: *const *const c_char,
    mode: *const c_char,
    pclose_arg: *mut PassToPclose,
    stderr_mode: c_int,
) -> *mut FILE {
    as_libc(null_mut(), || {
        // SAFETY: strings and list are null or terminated; `pclose_arg` is null or writable (popen_noshell.h).
        unsafe {
            let place = cleared(pclose_arg)?;
            let argv = list(argv)?;
            Program { file: text(file)?, argv: &argv, end: End::of(mode)?, stderr: stderr_mode }.open(place)
        }
    })
}
#[unsafe(no_mangle)]
unsafe extern "C" fn popen_noshell_compat(
    command: *const c_char,
    mode: *const c_char,
    pclose_arg: *mut PassToPclose,
) -> *mut FILE {
    as_libc(null_mut(), || {
        // SAFETY: `command` and `mode` are null or strings; `pclose_arg` is null or writable (popen_noshell.h).
        let (place, line, end) = unsafe { (cleared(pclose_arg)?, text(command)?, End::of(mode)?) };
        let words = split(line.as_bytes())?;
        let argv: Vec<_> = words.iter().map(OsString::as_os_str).collect();
        Program { file: argv[0], argv: &argv, end, stderr: 0 }.open(place)
    })
}
#[unsafe(no_mangle)]
unsafe extern "C" fn pclose_noshell(arg: *mut PassToPclose) -> c_int {
    as_libc(-1, || {
        // SAFETY: `arg` is null or was initialized by an opening function (popen_noshell.h).
        let arg = unsafe { arg.as_mut() }.ok_or(bad("the structure is a null pointer"))?;
        // SAFETY: the stream is null or open (popen_noshell.h), and its pointer is cleared below.
        let (closed, status) = unsafe { stream::close(arg.fp) }.ok_or(stream::NOT_OURS)?;
        arg.fp = null_mut();
        let status = status?;
        closed?;
        Ok(status)
    })
}

#[unsafe(no_mangle)]
extern "C" fn popen_noshell_set_fork_mode(mode: c_int) {
    MODE.store(mode, Ordering::Relaxed);
}

#[unsafe(no_mangle)]
extern "C" fn popen_noshell_get_fork_mode() -> c_int {
    MODE.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::split;

    #[track_caller]
    fn expect(words: &[&str], line: &str) {
        assert_eq!(split(line.as_bytes()).expect("words"), words, "{line:?}");
    }

    #[test]
    fn lines_are_split_at_blanks_that_are_not_quoted() {
        expect(&["ls", "-la", "/proc/self/fd"], "ls -la /proc/self/fd");
        expect(&["a", "b"], " \t a\t  b ");
        expect(&["a b", "it's", "say \"x\""], r#"'a b' "it's" 'say "x"'"#);
        expect(&["abcd ef"], "a'b'c\"d e\"f");
        expect(&["*", "~", "#", "a=b", "?[x]{y}", "\r"], "* ~ # a=b ?[x]{y} \r");
    }

    #[test]
    fn empty_quotations_are_words() {
        expect(&["a", "", "", "b"], "a '' \"\" b");
        expect(&[""], "''");
        expect(&["a", "b", ""], "a'' \"\"b ''");
    }

    #[test]
    fn lines_that_need_a_shell_are_refused() {
        for bad in ["", "  \t", "'", "a \"b'", "a 'b\""] {
            assert!(split(bad.as_bytes()).is_err(), "{bad:?}");
        }
        for byte in b"!\\$`\n|&;()<>" {
            for around in ["a*b", "*", "'*'", "a \"*\" b"] {
                let line = around.replace('*', &char::from(*byte).to_string());
                assert!(split(line.as_bytes()).is_err(), "{line:?}");
            }
        }
    }

    #[test]
    fn bytes_that_are_not_utf_8_are_kept() {
        let words = split(b"\xff '\x80 '").expect("words");
        assert_eq!(words.iter().map(|word| word.as_encoded_bytes()).collect::<Vec<_>>(), [&b"\xff"[..], b"\x80 "]);
    }
}

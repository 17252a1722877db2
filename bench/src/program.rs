//! The launched program: the embedded one, which only exits, or one chosen by the user.

use std::{
    ffi::{CString, OsStr, OsString},
    fs,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::{OpenOptionsExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    process::ExitStatus,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use forkless::Support;

/// The static program of `c/target.c`, built by `build.rs`.
pub(crate) const TARGET_PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/target-program"));

/// The static program of `c/worker.c`, which writes or waits.
const WORKER_PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/worker-program"));

/// A program with its arguments, in all formats that the methods need.
///
/// All are created in advance, so that the conversion is not measured.
pub(crate) struct Program {
    /// A path with a slash, so that no method searches `PATH`.
    pub(crate) path: PathBuf,
    pub(crate) args: Vec<OsString>,
    pub(crate) c_path: CString,
    pub(crate) c_argv: Vec<CString>,
    pub(crate) c_envp: Vec<CString>,
    /// The command line for `sh -c`.
    pub(crate) shell_command: CString,
    /// The temporary directory, removed at the end.
    _directory: Option<tempfile::TempDir>,
}

impl Program {
    /// Writes the embedded program into a directory that other users can neither list nor write to. They can execute the
    /// program, because some children run as another user.
    ///
    /// # Errors
    /// If the temporary directory cannot be written to, or programs in it cannot be executed.
    pub(crate) fn embedded() -> Result<Self> {
        Self::unpack(TARGET_PROGRAM, "exit0", Vec::new(), &[])
    }

    /// A program that writes this many bytes and exits with 0.
    ///
    /// # Errors
    /// As [`embedded`](Self::embedded).
    pub(crate) fn writer(bytes: u64) -> Result<Self> {
        Self::unpack(WORKER_PROGRAM, "worker", vec![bytes.to_string().into()], &["0"])
    }

    /// A program that waits for the end of its standard input.
    ///
    /// # Errors
    /// As [`embedded`](Self::embedded).
    pub(crate) fn waiter() -> Result<Self> {
        Self::unpack(WORKER_PROGRAM, "worker", Vec::new(), &["0"])
    }

    fn unpack(bytes: &[u8], name: &str, args: Vec<OsString>, try_out_with: &[&str]) -> Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("forkless-bench-")
            .permissions(fs::Permissions::from_mode(0o711))
            .tempdir()
            .context("cannot create a temporary directory for the program to launch")?;
        let path = directory.path().join(name);
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o755)
            .open(&path)
            .with_context(|| format!("cannot create {}", path.display()))?;
        std::io::Write::write_all(&mut file, bytes).with_context(|| format!("cannot write {}", path.display()))?;
        drop(file);
        try_out(&path, try_out_with)?;
        Self::build(path, args, Some(directory))
    }

    /// From the command line. A name without a slash is searched for in `PATH` once.
    ///
    /// # Errors
    /// If the program is not found.
    pub(crate) fn from_words(words: &[OsString]) -> Result<Self> {
        let Some((name, args)) = words.split_first() else { return Self::embedded() };
        let path = if name.as_bytes().contains(&b'/') { PathBuf::from(name) } else { search(name)? };
        Self::build(path, args.to_vec(), None)
    }

    /// From arguments as they are. A name without a slash is searched for by each launch.
    ///
    /// # Errors
    /// If there are no arguments.
    pub(crate) fn named(words: &[OsString]) -> Result<Self> {
        let (name, args) = words.split_first().context("no program")?;
        Self::build(PathBuf::from(name), args.to_vec(), None)
    }

    /// A program that does not exist, to check that each method reports it.
    #[cfg(test)]
    pub(crate) fn missing() -> Self {
        Self::build(PathBuf::from("/nonexistent/forkless-bench-target"), Vec::new(), None).expect("no NUL in it")
    }

    fn build(path: PathBuf, args: Vec<OsString>, directory: Option<tempfile::TempDir>) -> Result<Self> {
        let c_path = c_string(path.as_os_str())?;
        let mut c_argv = vec![c_path.clone()];
        for arg in &args {
            c_argv.push(c_string(arg)?);
        }
        let mut c_envp = Vec::new();
        for (name, value) in std::env::vars_os() {
            let mut entry = name.into_vec();
            entry.push(b'=');
            entry.extend_from_slice(value.as_bytes());
            c_envp.push(CString::new(entry).context("the environment contains a NUL byte")?);
        }
        let mut words = vec![shell_word(path.as_os_str())];
        words.extend(args.iter().map(|arg| shell_word(arg)));
        let shell_command = CString::new(words.join(&b' ')).context("an argument contains a NUL byte")?;
        Ok(Self { path, args, c_path, c_argv, c_envp, shell_command, _directory: directory })
    }
}

/// Runs the program once, to report clearly if temporary directories are mounted noexec.
///
/// Also waits until the file is not open for writing any more: a child that another thread forked meanwhile has inherited the
/// descriptor until it execs (ETXTBSY).
fn try_out(path: &Path, args: &[&str]) -> Result<()> {
    // If forkless cannot launch here, other methods may still work.
    let status = if Support::probe().is_ok_and(|support| support.shared_memory) {
        forkless::Command::new(path).args(args).retry_busy(Duration::from_secs(2)).status()
    } else {
        std::process::Command::new(path).args(args).status()
    };
    let status = status.with_context(|| {
        format!("cannot execute programs in {}; set TMPDIR to another directory", std::env::temp_dir().display())
    })?;
    check(status)
}

/// Checks that the program exited with 0.
pub(crate) fn check(status: ExitStatus) -> Result<()> {
    ensure!(status.success(), "the program must exit with 0, but ended with {status}");
    Ok(())
}

/// Finds a program in `PATH` the way execvp(3) does, except that only regular executable files count.
pub(crate) fn search(name: &OsStr) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    for directory in std::env::split_paths(&path) {
        let candidate = Path::new(".").join(directory).join(name);
        let runnable = fs::metadata(&candidate).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
        if runnable {
            return Ok(candidate);
        }
    }
    bail!("program {:?} not found in PATH", name.to_string_lossy())
}

fn c_string(word: &OsStr) -> Result<CString> {
    CString::new(word.as_bytes()).with_context(|| format!("NUL in {word:?}"))
}

/// An argument for sh(1), quoted only if necessary, as people write it.
fn shell_word(word: &OsStr) -> Vec<u8> {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"/._-+,:@%".contains(b);
    let bytes = word.as_bytes();
    if !bytes.is_empty() && bytes.iter().all(plain) {
        return bytes.to_vec();
    }
    let mut quoted = vec![b'\''];
    for &byte in bytes {
        match byte {
            b'\'' => quoted.extend_from_slice(b"'\\''"),
            _ => quoted.push(byte),
        }
    }
    quoted.push(b'\'');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_arguments_are_quoted_if_necessary() {
        assert_eq!(shell_word(OsStr::new("/bin/true")), b"/bin/true");
        assert_eq!(shell_word(OsStr::new("a b")), b"'a b'");
        assert_eq!(shell_word(OsStr::new("it's")), b"'it'\\''s'");
        assert_eq!(shell_word(OsStr::new("")), b"''");
    }

    #[test]
    fn embedded_program_exits_with_0_and_its_directory_goes() {
        let program = Program::embedded().expect("temporary directory");
        let path = program.path.clone();
        assert!(std::process::Command::new(&path).status().expect("runs").success());
        drop(program);
        assert!(!path.exists());
    }

    #[test]
    fn program_name_is_searched_in_path_once() {
        let program = Program::from_words(&["sh".into(), "-c".into(), "exit 0".into()]).expect("sh is everywhere");
        assert!(program.path.is_file());
        assert_eq!(program.c_argv.len(), 3);
        assert!(Program::from_words(&["no-such-program-anywhere".into()]).is_err());
    }
}

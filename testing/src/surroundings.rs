//! What tests require of the process and of the directory in which they run.

use anyhow::{Result, ensure};
use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, symlink};
use std::path::Path;

/// The value of LC_ALL that `cargo xtask` sets.
pub const LANGUAGE: &str = "C.UTF-8";

/// Gives the tests what a login shell gives, in this process and those that it starts: `nohup`, a background job, a service and a
/// strict user have other signals, another umask or another language. A test that depends on more sets it itself.
pub extern "C" fn usual() {
    for signal in (1..32).filter(|signal| ![libc::SIGKILL, libc::SIGPIPE, libc::SIGSTOP].contains(signal)) {
        // SAFETY: the default action runs no code of this process.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    // SAFETY: an empty set, which replaces the mask of this thread.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
    // SAFETY: umask(2) reads and writes no memory of this process.
    unsafe { libc::umask(0o022) };
    for name in ["LANG", "LANGUAGE", "LC_ALL", "LC_MESSAGES", "POSIXLY_CORRECT", "CDPATH", "PARALLEL"] {
        // If nothing must change, leave the environment as the kernel laid it out: some tests depend on that.
        if std::env::var_os(name).is_some_and(|value| value != LANGUAGE) {
            // SAFETY: this process has one thread.
            unsafe { std::env::remove_var(name) };
        }
    }
}

/// Calls `surroundings::usual` before `main` of this test program.
#[macro_export]
macro_rules! usual_surroundings {
    () => {
        // SAFETY: the C library calls the functions in this section before `main`, and they may ignore their arguments.
        #[used]
        #[unsafe(link_section = ".init_array")]
        static USUAL_SURROUNDINGS: extern "C" fn() = $crate::surroundings::usual;
    };
}

/// Fails if a path has a character at which `LD_PRELOAD` (ld.so(8)) or the flags of pkg-config are split.
///
/// # Errors
/// If it has one; the error names the path.
pub fn check_unsplit(path: &Path) -> Result<()> {
    let is_split = path.as_os_str().as_encoded_bytes().iter().any(|byte| byte.is_ascii_whitespace() || *byte == b':');
    ensure!(!is_split, "{path:?} has a blank or a colon: LD_PRELOAD, make and pkg-config split it there");
    Ok(())
}

/// The path of a program as one word of a shell, for scripts that use it without quotes. If a directory above the checkout
/// has a blank in its name, this is a link to the program in the directory for temporary files.
///
/// # Panics
/// If the link cannot be made.
#[must_use]
pub fn word(program: &str) -> String {
    let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._+-".contains(&byte));
    if is_plain(program) {
        return program.to_owned();
    }
    let path = Path::new(program);
    // SAFETY: geteuid(2) has no arguments and always succeeds.
    let own = unsafe { libc::geteuid() };
    let sum = program.bytes().fold(5381u64, |sum, byte| sum.wrapping_mul(33) ^ u64::from(byte));
    let directory = std::env::temp_dir().join(format!("forkless-tests-{own}-{sum:x}"));
    let _ = fs::DirBuilder::new().mode(0o700).create(&directory);
    let found = fs::symlink_metadata(&directory).expect("a directory");
    assert!(found.is_dir() && found.uid() == own, "{} belongs to somebody else", directory.display());
    let link = directory.join(path.file_name().expect("a program"));
    // Another test may make it at the same time.
    let _ = symlink(path, &link);
    assert_eq!(fs::read_link(&link).expect("a link"), path);
    let word = link.to_str().expect("text").to_owned();
    assert!(is_plain(&word), "TMPDIR has other characters than letters and digits: {word}");
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_blanks_is_a_word() {
        assert_eq!(word("/bin/true"), "/bin/true");
        assert!(check_unsplit(Path::new("/a/b-c_d.1")).is_ok() && check_unsplit(Path::new("/a b")).is_err());
        assert!(check_unsplit(Path::new("/a:b")).is_err());
        let place = std::env::temp_dir().join(format!("forkless tests {}", std::process::id()));
        fs::create_dir(&place).expect("a directory");
        symlink("/bin/echo", place.join("echo")).expect("a link");
        let program = place.join("echo").to_str().expect("text").to_owned();
        let script = format!("{} said", word(&program));
        let output = std::process::Command::new("sh").args(["-c", &script]).output().expect("a shell");
        assert_eq!(output.stdout, b"said\n");
        fs::remove_dir_all(Path::new(&word(&program)).parent().expect("a directory")).expect("ours");
        fs::remove_dir_all(place).expect("ours");
    }
}

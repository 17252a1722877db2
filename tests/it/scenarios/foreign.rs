//! Other ways to start a process, for the negative controls.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{null, null_mut};

fn c_string(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("no NUL")
}

/// `fork(2)` and `execve(2)` of a program without arguments; the child exits with 127 if that fails. Gives its pid.
pub fn fork_exec(program: &Path) -> i32 {
    let program = c_string(program);
    let argv = [program.as_ptr(), null()];
    let envp = [null()];
    // SAFETY: the child calls only execve and _exit.
    unsafe {
        let pid = libc::fork();
        if pid == 0 {
            libc::execve(program.as_ptr(), argv.as_ptr(), envp.as_ptr());
            libc::_exit(127);
        }
        assert!(pid > 0, "fork");
        pid
    }
}

/// `posix_spawn(3)` of a program without arguments. With `fifo`, the child opens that for reading first.
pub fn posix_spawn(program: &Path, fifo: Option<&Path>) -> Result<i32, i32> {
    let program = c_string(program);
    let fifo = fifo.map(c_string);
    let argv = [program.as_ptr().cast_mut(), null_mut()];
    let envp = [null_mut()];
    let mut pid = 0;
    // SAFETY: the actions are initialised before use and destroyed after it; strings and vectors end as they must.
    let error = unsafe {
        let mut actions = std::mem::zeroed();
        libc::posix_spawn_file_actions_init(&mut actions);
        if let Some(fifo) = &fifo {
            libc::posix_spawn_file_actions_addopen(&mut actions, 5, fifo.as_ptr(), libc::O_RDONLY, 0);
        }
        let error = libc::posix_spawn(&mut pid, program.as_ptr(), &actions, null(), argv.as_ptr(), envp.as_ptr());
        libc::posix_spawn_file_actions_destroy(&mut actions);
        error
    };
    if error == 0 { Ok(pid) } else { Err(error) }
}

/// `waitpid(2)`: the wait status, or the errno.
pub fn wait(pid: i32, options: i32) -> Result<(i32, i32), i32> {
    let mut status = 0;
    // SAFETY: the kernel writes a status.
    match unsafe { libc::waitpid(pid, &mut status, options) } {
        -1 => Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)),
        pid => Ok((pid, status)),
    }
}

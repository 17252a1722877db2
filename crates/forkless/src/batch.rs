//! Many launches at once.

use crate::child::Child;
use crate::launch::Creator;
use crate::prepared::Prepared;
use std::io;
use std::num::NonZero;
use std::thread;

/// So many launches are worth a thread, which costs as much as a few of them.
const WORTH_A_THREAD: usize = 32;

/// Launches each of these, on as many processors as there are, and gives their handles, or why there is none, in the order of the
/// commands. One that fails has no effect on the others.
///
/// # Errors
/// Each entry's are those of [`Prepared::launch`].
///
/// # In the children
/// Each is launched as by [`Prepared::launch`]: whether a program could be executed is told by its handle. The threads that do it are made
/// from the calling one, so the children have its processors, nice value and the like; a command with a
/// [`thread_death_signal`](crate::Command::thread_death_signal) is launched by the calling thread itself.
///
/// ```
/// use forkless::{Command, launch_all};
/// let commands: Vec<_> =
///     (0..100).map(|n| Command::new("sh").args(["-c", &format!("exit {n}")]).prepare()).collect::<Result<_, _>>()?;
/// for (n, child) in launch_all(&commands).into_iter().enumerate() {
///     assert_eq!(child?.wait()?.code(), Some(n as i32));
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn launch_all(commands: &[Prepared]) -> Vec<io::Result<Child>> {
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    let is_ours = |one: &Prepared| one.plan().names_parent && matches!(one.plan().creator, Creator::Caller);
    let threads = if commands.iter().any(is_ours) { 1 } else { processors.min(commands.len() / WORTH_A_THREAD) };
    let launch = |part: &[Prepared]| part.iter().map(Prepared::launch).collect::<Vec<_>>();
    if threads < 2 {
        return launch(commands);
    }
    let mut parts = commands.chunks(commands.len().div_ceil(threads));
    let first = parts.next().unwrap_or(&[]);
    thread::scope(|scope| {
        // A thread that cannot be had leaves its part to us.
        let started: Vec<_> = parts
            .map(|part| (part, thread::Builder::new().stack_size(STACK).spawn_scoped(scope, move || launch(part))))
            .collect();
        let mut children = launch(first);
        for (part, thread) in started {
            children.extend(match thread {
                Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                Err(_) => launch(part),
            });
        }
        children
    })
}

/// Enough for launches, in bytes.
const STACK: usize = 256 * 1024;

//! Many launches at once.

use crate::child::Child;
use crate::plan::Creator;
use crate::prepared::Prepared;
use std::io;
use std::num::NonZero;
use std::thread;
use std::time::Duration;

/// So many launches are worth a thread, which costs as much as a few of them.
const WORTH_A_THREAD: usize = 32;

/// Launches each of these, from several threads where there are more than two processors, and gives their handles, or why there is none, in the order of the
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
    // The children need processors too: with two of them a second thread only gets in their way.
    let processors = thread::available_parallelism().map_or(1, NonZero::get) / 2;
    let is_ours = |one: &Prepared| one.plan().names_parent && matches!(one.plan().creator, Creator::Caller);
    let threads = if commands.iter().any(is_ours) { 1 } else { processors.min(commands.len() / WORTH_A_THREAD) };
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

/// How many children of one thread may be on their way to their programs: more would need stacks that are not kept, and
/// memory that is in no cache. The best of 4 to 1,000, for 1,000 launches on two processors.
const ON_THEIR_WAY: usize = 64;

/// For how long.
const PATIENCE: Duration = Duration::from_millis(10);

fn launch(commands: &[Prepared]) -> Vec<io::Result<Child>> {
    let mut children: Vec<io::Result<Child>> = Vec::with_capacity(commands.len());
    for (n, command) in commands.iter().enumerate() {
        if let Some(Ok(earlier)) = n.checked_sub(ON_THEIR_WAY).and_then(|n| children.get_mut(n)) {
            // Gives its stack back. A failure is told again when the handle is waited for; one that is stopped is left behind.
            let _ = earlier.wait_exec_timeout(PATIENCE);
        }
        children.push(command.launch());
    }
    children
}

/// Enough for launches, in bytes.
const STACK: usize = 256 * 1024;

//! Launching many commands at once.

use crate::child::Child;
use crate::plan::Creator;
use crate::prepared::Prepared;
use std::io;
use std::num::NonZero;
use std::thread;
use std::time::Duration;

/// The number of launches that justifies a further thread: creating one costs as much as a few launches.
const WORTH_A_THREAD: usize = 32;

/// Launches all these commands, and returns for each its handle or its error, in the order of the commands. A command
/// that fails has no effect on the others.
///
/// From 64 commands and four CPUs on, it uses several threads.
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
///
/// # Errors
/// Each entry's are those of [`Prepared::launch`].
///
/// # In the children
/// Each is launched as by [`Prepared::launch`]: its handle reports whether the program could be executed. The threads
/// are created by the calling thread, so the children inherit its CPU affinity, nice value and so on. If a command has
/// a [`parent_death_signal`](crate::Command::parent_death_signal) or a
/// [`thread_death_signal`](crate::Command::thread_death_signal), the calling thread launches all of them.
pub fn launch_all(commands: &[Prepared]) -> Vec<io::Result<Child>> {
    // The children need CPUs too: on two CPUs a second thread only takes time from them.
    let processors = thread::available_parallelism().map_or(1, NonZero::get) / 2;
    // With a parent-death signal it matters which thread clones.
    let is_ours = |one: &Prepared| one.plan().place.names_parent || matches!(one.plan().creator, Creator::Process);
    let threads = if commands.iter().any(is_ours) { 1 } else { processors.min(commands.len() / WORTH_A_THREAD) };
    if threads < 2 {
        return launch(commands);
    }
    let mut parts = commands.chunks(commands.len().div_ceil(threads));
    let first = parts.next().unwrap_or(&[]);
    thread::scope(|scope| {
        // If a thread cannot be created, the calling thread launches its part.
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

/// How many children of one thread may be between clone and exec. More would need stacks that are not kept, and memory
/// that is in no cache. It was the best of 4 to 1,000, for 1,000 launches on two CPUs.
const ON_THEIR_WAY: usize = 64;

/// How long to wait for an earlier child's exec.
const PATIENCE: Duration = Duration::from_millis(10);

fn launch(commands: &[Prepared]) -> Vec<io::Result<Child>> {
    let mut children: Vec<io::Result<Child>> = Vec::with_capacity(commands.len());
    for (n, command) in commands.iter().enumerate() {
        if let Some(Ok(earlier)) = n.checked_sub(ON_THEIR_WAY).and_then(|n| children.get_mut(n)) {
            // Returns its stack to the pool. A failure is reported again when the handle is waited for. A stopped child is skipped.
            let _ = earlier.wait_exec_timeout(PATIENCE);
        }
        children.push(command.launch());
    }
    children
}

/// The stack of such a thread, in bytes: enough for launches.
const STACK: usize = 256 * 1024;

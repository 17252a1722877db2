//! How many arguments have been put into lines or measured: counted for a test alone.

#[cfg(test)]
thread_local! {
    static ARGUMENTS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// The count of this thread.
#[cfg(test)]
pub(super) fn arguments() -> usize {
    ARGUMENTS.get()
}

pub(super) fn looked_at(_count: usize) {
    #[cfg(test)]
    ARGUMENTS.set(ARGUMENTS.get() + _count);
}

//! What is known of a shell, and of a place in its lines.

/// The language of the shell that runs the lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Language {
    /// sh, dash, busybox: it may have `$'…'`, or not.
    Posix,
    /// bash, zsh, ksh93, which have `$'…'`.
    Bash,
    /// fish, where a backslash escapes inside single quotes.
    Fish,
}

/// What surrounds a place in a shell line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    /// `'…'`
    Single,
    /// `"…"`
    Double,
    /// `$'…'`
    Ansi,
    /// Backquotes.
    Backquote,
    /// Backquotes inside of `"…"`.
    QuotedBackquote,
    /// `"${x-…}"`, and so on.
    Text,
    /// `"${x#…}"` and whatever else is in braces.
    Pattern,
    /// From `#` to the end of the line.
    Comment,
    /// After a `$`.
    Dollar,
}

//! What a user asks for: a command with its settings.

pub(crate) mod command;
pub(crate) mod stdio;

//! What a user asks for: a command with its settings, its environment, and functions that run before the exec.

use std::any::Any;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

pub(crate) mod closure;
pub(crate) mod command;
pub(crate) mod environment;
pub(crate) mod stdio;

/// What clones in place of the launcher: a zygote or warm programs. Only their modules can downcast it.
pub(crate) type ClonerHandle = Arc<dyn Any + Send + Sync + UnwindSafe + RefUnwindSafe>;

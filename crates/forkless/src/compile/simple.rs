//! Settings of one value: their ops, where the table of settings says the call.

use crate::compile::arena::{Arena, Arg};
use crate::compile::setup::Steps;
use crate::step::Step;
use forkless_core::sys::{prctl, uapi};

/// An argument of a call in the table.
trait Word {
    fn arg(self, arena: &mut Arena) -> Arg;
}

impl Word for u64 {
    fn arg(self, _: &mut Arena) -> Arg {
        Arg::Number(self)
    }
}

impl Word for u32 {
    fn arg(self, _: &mut Arena) -> Arg {
        Arg::Number(self.into())
    }
}

/// The address of a copy.
impl Word for &[u64] {
    fn arg(self, arena: &mut Arena) -> Arg {
        Arg::Data(arena.words(self))
    }
}

impl<T: Word + Copy> Word for &T {
    fn arg(self, arena: &mut Arena) -> Arg {
        (*self).arg(arena)
    }
}

/// When a call of the table is made: docs/design/order.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// Before the ids: what may need the caller's privileges.
    Resources,
    /// After them, before filters.
    Last,
}

macro_rules! op {
    ($now:ident $steps:ident $name:ident $step:ident $value:ident { by_hand }) => {};
    (
        $now:ident $steps:ident $name:ident $step:ident $value:ident
        { $when:ident: $call:ident($($arg:expr),*), $object:literal }
    ) => {
        if let Some($value) = $steps.setup.simple.$name.as_ref().filter(|_| $now == When::$when) {
            // Where the call alone says it all.
            let _ = $value;
            let args = [$($arg.arg($steps.arena)),*];
            $steps.call(Step::$step, &format!($object), uapi::$call, &args);
        }
    };
}

macro_rules! refusal {
    (refused $name:ident) => {
        Some(stringify!($name))
    };
}

macro_rules! simple {
    (
        played { $(
            $(#[$doc:meta])*
            $name:ident($value:ident: $($kind:tt)*) {
                line $line:literal step $step:ident = $code:literal, $words:literal, $of:literal op $op:tt
                memory $memory:ident ids $ids:ident posix_spawn $verdict:ident $($rest:tt)*
            }
        )* }
        passed $passed:tt
    ) => {
        /// The calls of the settings whose time is now.
        pub(super) fn calls(steps: &mut Steps<'_>, now: When) {
            $(op! { now steps $name $step $value $op })*
        }

        /// The setting that `posix_spawn` refuses where it comes to this step.
        pub(crate) fn refused_by_posix_spawn(step: Step) -> Option<&'static str> {
            match step {
                $(Step::$step => refusal!($verdict $name),)*
                _ => None,
            }
        }
    };
}

crate::settings!(simple);

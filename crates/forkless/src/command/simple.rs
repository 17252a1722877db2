//! Settings of one value: what follows from the table of settings in a command.

use crate::command::Command;

/// A setting's type, whether it says anything, and its range.
macro_rules! kind {
    (type word($type:ty)) => {
        $type
    };
    (type flag) => {
        bool
    };
    (type $number:ident $(($low:literal, $high:literal))?) => {
        $number
    };
    (keep flag $value:ident) => {
        $value.then_some(true)
    };
    (keep $kind:ident $value:ident) => {
        Some($value)
    };
    (check i32($low:literal, $high:literal) $name:ident $value:expr) => {
        if $value.is_some_and(|value| !($low..=$high).contains(&value)) {
            return Some(concat!("the ", stringify!($name), " is out of range: it is from ", $low, " to ", $high));
        }
    };
    (check $kind:ident $(($type:ty))? $name:ident $value:expr) => {};
}

macro_rules! verdict {
    (shared) => {
        false
    };
    (own) => {
        true
    };
    (kept) => {
        false
    };
    (changed) => {
        true
    };
    (inherited) => {
        false
    };
    (felt) => {
        true
    };
}

macro_rules! simple {
    (
        played { $(
            $(#[$doc:meta])*
            $name:ident($arg:ident: $kind:ident $(($($more:tt)*))?) {
                line $line:literal step $step:ident = $code:literal, $words:literal, $of:literal op $op:tt
                memory $memory:ident ids $ids:ident posix_spawn $posix:ident shell $shell:ident $($rest:tt)*
            }
        )* }
        passed $passed:tt
    ) => {
        /// What was asked for.
        #[derive(Debug, Default)]
        pub(crate) struct Simple {
            $(pub(crate) $name: Option<kind!(type $kind $(($($more)*))?)>,)*
        }

        /// Settings of one value. Each is one system call in the child, unless said otherwise.
        impl Command {
            $(
                $(#[$doc])*
                pub fn $name(&mut self, $arg: kind!(type $kind $(($($more)*))?)) -> &mut Self {
                    self.setup.simple.$name = kind!(keep $kind $arg);
                    self
                }
            )*
        }

        impl Simple {
            /// What is outside its range, in words.
            pub(crate) fn out_of_range(&self) -> Option<&'static str> {
                $(kind!(check $kind $(($($more)*))? $name self.$name);)*
                None
            }

            /// A setting that changes the memory of who makes the call, by its name.
            pub(crate) fn of_own_memory(&self) -> Option<&'static str> {
                [$((verdict!($memory) && self.$name.is_some(), stringify!($name))),*]
                    .into_iter()
                    .find_map(|(is, name)| is.then_some(name))
            }

            /// Is the child somebody else by one of them?
            pub(crate) fn changes_ids(&self) -> bool {
                [$(verdict!($ids) && self.$name.is_some()),*].contains(&true)
            }

            /// Would a shell feel one of them otherwise than the programs that it starts?
            pub(crate) fn is_felt_by_shells(&self) -> bool {
                [$(verdict!($shell) && self.$name.is_some()),*].contains(&true)
            }
        }
    };
}

crate::settings!(simple);

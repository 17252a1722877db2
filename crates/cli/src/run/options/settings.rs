//! The flags that are one setting with its value: they follow from the library's table of settings.

use std::fmt;

use clap::{Arg, ArgMatches, Args, FromArgMatches, value_parser};
use forkless::*;

/// What was given. None: the options were not defined.
#[derive(Clone, Default)]
pub(crate) struct Settings(Option<ArgMatches>);

/// Adds to a flag how clap parses its value.
macro_rules! read {
    ($arg:expr, $value:literal, flag) => {
        $arg.action(clap::ArgAction::SetTrue)
    };
    ($arg:expr, $value:literal, i32 ($low:literal, $high:literal)) => {
        $arg.value_name($value).allow_negative_numbers(true).value_parser(value_parser!(i32).range($low..=$high))
    };
    ($arg:expr, $value:literal, word ($type:ty)) => {
        $arg.value_name($value).value_parser(|word: &str| word.parse::<$type>())
    };
    ($arg:expr, $value:literal, $number:ident) => {
        $arg.value_name($value).value_parser(value_parser!($number))
    };
}

/// The Rust type of a value.
macro_rules! kind {
    (flag) => {
        bool
    };
    (word ($type:ty)) => {
        $type
    };
    ($number:ident $($range:tt)?) => {
        $number
    };
}

macro_rules! flag {
    ($command:ident, { by_hand $words:literal }, $line:literal, $($kind:tt)*) => {};
    ($command:ident, { $flag:literal, $value:literal, $heading:literal }, $line:literal, $($kind:tt)*) => {
        let arg = Arg::new($flag).long($flag).help($line).help_heading($heading);
        let $command = $command.arg(read!(arg, $value, $($kind)*));
    };
}

macro_rules! apply {
    ($given:ident, $command:ident, $name:ident, { by_hand $words:literal }, $($kind:tt)*) => {};
    ($given:ident, $command:ident, $name:ident, { $flag:literal, $value:literal, $heading:literal }, $($kind:tt)*) => {
        if let Some(value) = $given.get_one::<kind!($($kind)*)>($flag) {
            $command.$name(value.clone());
        }
    };
}

macro_rules! is_named {
    ($option:ident, { by_hand $words:literal }) => {
        false
    };
    ($option:ident, { $flag:literal, $value:literal, $heading:literal }) => {
        $option == $flag
    };
}

macro_rules! shown {
    ($given:ident, $list:ident, { by_hand $words:literal }, $($kind:tt)*) => {};
    ($given:ident, $list:ident, { $flag:literal, $value:literal, $heading:literal }, $($kind:tt)*) => {
        if let Some(value) = $given.get_one::<kind!($($kind)*)>($flag) {
            let words = format!("{value:?}");
            if words != "false" {
                $list.entry(&$flag, &words);
            }
        }
    };
}

macro_rules! settings {
    (
        played { $(
            $(#[$doc:meta])*
            $name:ident($arg:ident: $kind:ident $(($($more:tt)*))?) {
                line $line:literal step $step:ident = $code:literal, $words:literal, $of:literal op $op:tt
                memory $memory:ident ids $ids:ident posix_spawn $posix:ident shell $shell:ident
                run $run:tt $($rest:tt)*
            }
        )* }
        passed $passed:tt
    ) => {
        impl Settings {
            /// Is this long option one of these flags?
            pub(crate) fn has_option(option: &str) -> bool {
                false $(|| is_named!(option, $run))*
            }

            #[allow(clippy::clone_on_copy, reason = "not all values are")]
            pub(crate) fn apply(&self, command: &mut Command) {
                let Some(given) = &self.0 else { return };
                $(apply!(given, command, $name, $run, $kind $(($($more)*))?);)*
            }
        }

        impl fmt::Debug for Settings {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut list = out.debug_map();
                if let Some(given) = &self.0 {
                    $(shown!(given, list, $run, $kind $(($($more)*))?);)*
                }
                list.finish()
            }
        }

        impl Args for Settings {
            fn augment_args(command: clap::Command) -> clap::Command {
                $(flag!(command, $run, $line, $kind $(($($more)*))?);)*
                command
            }

            fn augment_args_for_update(command: clap::Command) -> clap::Command {
                Self::augment_args(command)
            }
        }
    };
}

forkless::settings!(settings);

impl FromArgMatches for Settings {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self(Some(matches.clone())))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0 = Some(matches.clone());
        Ok(())
    }
}

//! The functions of settings that take one value, from the library's table of settings.

use crate::boundary::to_status;
use crate::command::{self, Settable};
use crate::handle::{self, NULL, copy, number, signal, text};
use forkless::CapabilitySet;
use libc::{c_char, c_int, mode_t};

/// The C type of a kind of value.
macro_rules! kind {
    (u64) => { u64 };
    (u32) => { u32 };
    (mode) => { mode_t };
    (capabilities) => { u64 };
    (word) => { *const c_char };
    (amount) => { *const c_char };
    (path) => { *const c_char };
    (text) => { *const c_char };
    ($int:ident) => { c_int };
}

/// Converts the C value to what the builder takes.
macro_rules! value {
    (flag $given:ident) => {
        $given != 0
    };
    (number $given:ident) => {
        number($given)?
    };
    (signal $given:ident) => {
        signal($given)?
    };
    (fd $given:ident) => {
        copy($given)?
    };
    (file $given:ident) => {
        copy($given)?
    };
    (path $given:ident) => {
        text($given)?
    };
    (text $given:ident) => {
        text($given)?
    };
    (capabilities $given:ident) => {
        CapabilitySet::from_bits($given)
    };
    (amount $given:ident) => {
        handle::utf8($given)?
    };
    (word $given:ident) => {
        handle::utf8($given)?.parse().map_err(|_| crate::error::bad("invalid value for this setting"))?
    };
    ($plain:ident $given:ident) => {
        $given
    };
}

macro_rules! setters {
    (
        played { $($(#[$doc:meta])* $name:ident($arg:ident: $kind:ident $(($($more:tt)*))?) $row:tt)* }
        passed { $($pname:ident($parg:ident: $pkind:ident) $prow:tt)* }
    ) => {
        $(setters!($name $kind);)*
        $(setters!($pname $pkind);)*
    };
    ($name:ident $kind:ident) => {
        mod $name {
            #[allow(unused_imports, reason = "for some kinds")]
            use super::*;

            #[unsafe(export_name = concat!("forkless_command_", stringify!($name)))]
            unsafe extern "C" fn set(command: *mut Settable, given: kind!($kind)) -> c_int {
                // SAFETY: `command` is null or a live handle; `given` is a number, or null or a string (forkless.h).
                unsafe {
                    to_status(NULL, || {
                        command::set(command, |command| {
                            command.$name(value!($kind given));
                            Ok(0)
                        })
                    })
                }
            }
        }
    };
}

forkless::settings!(setters);

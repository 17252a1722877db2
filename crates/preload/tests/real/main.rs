//! Runs programs of Debian's packages with and without `libforkless_preload.so`: their output must be the same.
//!
//! [`compare`] runs a program with each setting. [`languages`] have `popen` and `system` functions of their own,
//! [`builders`] use `posix_spawn`, and [`forkers`] use none of these and are not affected by the library. Tests of
//! servers start and stop them, on private sockets.

mod compare;
mod languages;
mod builders;
mod forkers;
mod postgres;
mod web;
mod sanitizers;

//! Programs of Debian's packages with `libforkless_preload.so` under them: the same output with and without.
//!
//! [`compare`] runs a program in each way; [`languages`] have their own `popen` and `system`, [`builders`] take `posix_spawn`,
//! [`forkers`] call neither and so see nothing of the library. Servers are started and stopped by their tests, on sockets of theirs.

mod compare;

mod languages;

mod builders;

mod forkers;

mod postgres;

mod web;

mod sanitizers;

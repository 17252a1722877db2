//! The addon `forkless.node`, on which the modules in `lib` are based.
//!
//! JavaScript prepares a request: strings, numbers, and settings as JSON. A launch takes place in the calling thread, which is a
//! thread of Node with an event loop. The loop polls the pidfd of each child, so no thread waits, and SIGCHLD is left to libuv.

#![cfg_attr(
    test,
    allow(dead_code, unused_imports, reason = "napi exports nothing to a test of the library, which is empty")
)]
#![allow(unreachable_pub, reason = "napi exports only what is public")]

mod request;
mod settings;
mod sandbox;
mod cgroup;
mod pty;
mod error;
mod watch;
mod spawn;
mod sync;

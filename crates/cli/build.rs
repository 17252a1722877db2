//! Settings of the linker that make the start of every `forkless run` cheaper.
//!
//! - The static unwinder of the C compiler: forkless then needs no libgcc_s.so, which would have to be loaded.
//! - Packed relocations (DT_RELR): the dynamic loader reads 2 KB instead of 200 KB. It understands them since glibc 2.36.
//!
//! Both need the glibc of this machine. With the variable FORKLESS_PORTABLE, which `cargo xtask package` sets for its archive, the command
//! has neither.

use std::{env, path::PathBuf, process::Command};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=CC");
    println!("cargo::rerun-if-env-changed=FORKLESS_PORTABLE");
    println!("cargo::rustc-check-cfg=cfg(static_unwinder)");
    let get = |name: &str| env::var(name).unwrap_or_default();
    // Rust's musl targets have an unwinder of their own; another machine's compiler may have another name.
    if get("CARGO_CFG_TARGET_ENV") != "gnu" || get("HOST") != get("TARGET") || !get("FORKLESS_PORTABLE").is_empty() {
        return;
    }
    if glibc().is_some_and(|version| version >= (2, 36)) {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
    let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
    let Ok(output) = Command::new(compiler).arg("-print-file-name=libgcc_eh.a").output() else { return };
    let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    // A compiler that does not have the file prints its name alone.
    if let Some(directory) = path.parent().filter(|_| path.is_absolute() && path.exists()) {
        println!("cargo::rustc-link-search=native={}", directory.display());
        println!("cargo::rustc-cfg=static_unwinder");
    }
}

/// The version of this machine's glibc. The command runs with it or a later one.
fn glibc() -> Option<(u32, u32)> {
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let (major, minor) = text.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

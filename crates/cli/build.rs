//! Finds the static unwinder of the C compiler. With it, forkless needs no libgcc_s.so, whose loading would make every
//! `forkless run` slower.

use std::{env, path::PathBuf, process::Command};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=CC");
    println!("cargo::rustc-check-cfg=cfg(static_unwinder)");
    let get = |name: &str| env::var(name).unwrap_or_default();
    // Rust's musl targets have an unwinder of their own; another machine's compiler may have another name.
    if get("CARGO_CFG_TARGET_ENV") != "gnu" || get("HOST") != get("TARGET") {
        return;
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

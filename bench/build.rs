//! Builds the C methods of `forkless bench` and the programs that all methods launch.
//!
//! All are compiled with optimisation whatever the cargo profile: a floor measured at `-O0` would flatter us.

use std::{env, path::PathBuf};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=c");

    cc::Build::new()
        .file("c/contestants.c")
        .file("c/settings.c")
        .file("c/output.c")
        .opt_level(2)
        .std("gnu11")
        .warnings(true)
        .extra_warnings(true)
        .compile("forkless_contestants");

    build_program("c/target.c", "target-program");
    build_program("c/worker.c", "worker-program");
    println!(
        "cargo::rustc-env=FORKLESS_BUILD_TARGET={}",
        env::var("TARGET").expect("cargo sets TARGET for build scripts")
    );
}

/// Links a static program without libc; `src/program.rs` embeds it.
fn build_program(source: &str, name: &str) {
    let out_dir = env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts");
    let output = PathBuf::from(out_dir).join(name);
    let mut link = cc::Build::new().get_compiler().to_command();
    link.args(["-O2", "-static", "-no-pie", "-nostdlib", "-nostartfiles"])
        .args(["-ffreestanding", "-fno-stack-protector", "-fno-pie"])
        .args(["-fno-asynchronous-unwind-tables", "-Wl,--build-id=none", "-s"])
        .arg("-o")
        .arg(&output)
        .arg(source);
    let status = link.status().expect("the C compiler runs");
    assert!(status.success(), "could not link {source}: {link:?} gave {status}");
}

//! Builds the C functions whose frames a cancelled thread unwinds: these must not be Rust frames.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=c");
    // Without -fexceptions: pthread_cleanup_push(3) then only needs glibc's unwinder.
    cc::Build::new()
        .file("c/close.c")
        .file("c/prctl.c")
        .file("c/system.c")
        .std("gnu11")
        .warnings(true)
        .extra_warnings(true)
        .compile("forkless_preload_c");
}

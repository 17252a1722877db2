//! Builds the part that a cancelled thread unwinds through, which must not be Rust's.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=c");
    // Without -fexceptions: pthread_cleanup_push(3) then needs no unwinder of ours, but only glibc's.
    cc::Build::new()
        .file("c/close.c")
        .file("c/prctl.c")
        .file("c/system.c")
        .file("c/versions.c")
        .std("gnu11")
        .warnings(true)
        .extra_warnings(true)
        .compile("forkless_preload_c");
}

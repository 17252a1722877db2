//! The system: kernel, libc, and signs of containers, virtual machines and emulators.

use std::{ffi::CStr, fs, path::Path};

use super::report::System;

/// Reads all files below `root`, which is `/` except in tests.
pub(crate) fn read(root: &Path) -> System {
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    System {
        hints: hints(root, &kernel),
        forkless: env!("CARGO_PKG_VERSION").to_owned(),
        kernel,
        architecture: std::env::consts::ARCH.to_owned(),
        libc: libc(),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        memory_mib: meminfo(root, "MemTotal").unwrap_or(0) >> 10,
    }
}

/// A line of `/proc/meminfo`, in KiB.
pub(super) fn meminfo(root: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let line = text.lines().find(|line| line.split(':').next() == Some(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(target_env = "gnu")]
fn libc() -> String {
    // SAFETY: the function has no precondition and returns a pointer to a static string that ends with NUL.
    let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
    format!("glibc {}", version.to_string_lossy())
}

#[cfg(not(target_env = "gnu"))]
fn libc() -> String {
    let _: Option<&CStr> = None;
    if cfg!(target_env = "musl") { "musl".to_owned() } else { "unknown".to_owned() }
}

/// Hints for people only. The probes, not these hints, decide what works.
fn hints(root: &Path, kernel: &str) -> Vec<String> {
    let text = |path: &str| fs::read_to_string(root.join(path)).map(|text| text.trim().to_owned()).ok();
    let mut hints = Vec::new();
    for (file, name) in [(".dockerenv", "Docker"), ("run/.containerenv", "Podman")] {
        if root.join(file).exists() {
            hints.push(format!("in a container: {name} (/{file})"));
        }
    }
    // systemd writes this file; the variable `container` is in the environment of init only.
    if let Some(name) = text("run/systemd/container").filter(|name| !name.is_empty()) {
        hints.push(format!("in a container: {name} (/run/systemd/container)"));
    }
    if root.join("var/run/secrets/kubernetes.io").exists() {
        hints.push("in a Kubernetes pod".to_owned());
    }
    // The fixed inode numbers of the initial namespaces: PROC_PID_INIT_INO and others in linux/nsfs.h.
    for (name, first, words) in [
        ("pid", "pid:[4026531836]", "PID"),
        ("user", "user:[4026531837]", "user"),
        ("cgroup", "cgroup:[4026531835]", "cgroup"),
    ] {
        let link = fs::read_link(root.join("proc/self/ns").join(name));
        if link.is_ok_and(|link| link.as_os_str() != first) {
            hints.push(format!("not in the initial {words} namespace"));
        }
    }
    if kernel.contains("Microsoft") {
        hints.push("WSL1: translated system calls; CLONE_VM shares no memory".to_owned());
    } else if kernel.contains("microsoft") {
        hints.push("WSL2: a Linux kernel in a virtual machine".to_owned());
    }
    if text("proc/version").is_some_and(|version| version.contains("gVisor")) {
        hints.push("gVisor: a user-space kernel instead of Linux".to_owned());
    }
    let maker = text("sys/class/dmi/id/sys_vendor").filter(|maker| !maker.is_empty());
    let flag = |line: &str| line.starts_with("flags") && line.split_whitespace().any(|flag| flag == "hypervisor");
    let is_virtual = text("proc/cpuinfo").is_some_and(|cpus| cpus.lines().any(flag));
    if is_virtual {
        hints.push(match maker {
            Some(maker) => format!("in a virtual machine ({maker})"),
            None => "in a virtual machine".to_owned(),
        });
    }
    if !is_native(&text("proc/cpuinfo").unwrap_or_default()) {
        hints.push(format!("emulated: this program is built for {}, but the CPU is not", std::env::consts::ARCH));
    }
    hints
}

/// False under user-mode emulation, where /proc/cpuinfo is usually that of the real CPU. True if nothing is known.
fn is_native(cpus: &str) -> bool {
    let (x86, arm) = (cpus.contains("vendor_id"), cpus.contains("CPU implementer"));
    match std::env::consts::ARCH {
        "x86_64" => x86 || !arm,
        "aarch64" => arm || !x86,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_read_and_may_be_absent() {
        let root = tempfile::tempdir().expect("temporary directory");
        assert_eq!(hints(root.path(), "6.1.0"), Vec::<String>::new());
        fs::write(root.path().join(".dockerenv"), "").expect("written");
        fs::create_dir_all(root.path().join("proc/self/ns")).expect("directories");
        std::os::unix::fs::symlink("pid:[4026532001]", root.path().join("proc/self/ns/pid")).expect("a link");
        std::os::unix::fs::symlink("user:[4026531837]", root.path().join("proc/self/ns/user")).expect("a link");
        fs::write(root.path().join("proc/version"), "Linux version 4.4.0 (gVisor)").expect("written");
        let hints = hints(root.path(), "5.15.0-microsoft-standard-WSL2");
        let wanted = ["Docker", "PID namespace", "WSL2", "gVisor"];
        assert_eq!(hints.len(), wanted.len(), "{hints:?}");
        assert!(hints.iter().zip(wanted).all(|(hint, part)| hint.contains(part)), "{hints:?}");
    }
}

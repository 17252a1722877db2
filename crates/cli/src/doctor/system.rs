//! Where we are: kernel, libc, and signs of what stands between us and the machine.

use std::{fs, path::Path};

use super::report::System;
use forkless_bench::Machine;

/// Reads it; `root` is `/`.
pub(crate) fn read(root: &Path) -> System {
    let machine = Machine::read();
    System {
        hints: hints(root, &machine.kernel),
        forkless: machine.forkless,
        kernel: machine.kernel,
        architecture: machine.arch,
        libc: machine.libc,
        cores: machine.cores,
        memory_mib: machine.memory_mib,
    }
}

/// None of them proves anything: what can be done is found by trying it.
fn hints(root: &Path, kernel: &str) -> Vec<String> {
    let text = |path: &str| fs::read_to_string(root.join(path)).map(|text| text.trim().to_owned()).ok();
    let mut hints = Vec::new();
    for (file, name) in [(".dockerenv", "Docker"), ("run/.containerenv", "Podman")] {
        if root.join(file).exists() {
            hints.push(format!("in a container: {name} (/{file})"));
        }
    }
    // systemd writes it down for all to read; the variable is only in init's own environment.
    if let Some(name) = text("run/systemd/container").filter(|name| !name.is_empty()) {
        hints.push(format!("in a container: {name} (/run/systemd/container)"));
    }
    if root.join("var/run/secrets/kubernetes.io").exists() {
        hints.push("in a pod of Kubernetes".to_owned());
    }
    // PROC_PID_INIT_INO and its like in linux/nsfs.h: what the first namespaces are numbered, always.
    for (name, first, words) in [
        ("pid", "pid:[4026531836]", "a process-id namespace"),
        ("user", "user:[4026531837]", "a user namespace"),
        ("cgroup", "cgroup:[4026531835]", "a control-group namespace"),
    ] {
        let link = fs::read_link(root.join("proc/self/ns").join(name));
        if link.is_ok_and(|link| link.as_os_str() != first) {
            hints.push(format!("in {words} of its own"));
        }
    }
    if kernel.contains("Microsoft") {
        hints.push("WSL1: system calls are translated, and CLONE_VM shares nothing".to_owned());
    } else if kernel.contains("microsoft") {
        hints.push("WSL2: a Linux kernel in a virtual machine".to_owned());
    }
    if text("proc/version").is_some_and(|version| version.contains("gVisor")) {
        hints.push("gVisor: another kernel in Linux's place".to_owned());
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
    if !running_natively(&text("proc/cpuinfo").unwrap_or_default()) {
        hints.push(format!("this program is for {}, the processor is not: emulated", std::env::consts::ARCH));
    }
    hints
}

/// Under user-mode emulation /proc/cpuinfo is mostly that of the real processor. Where nothing is known, nothing is said.
fn running_natively(cpus: &str) -> bool {
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
    fn signs_are_read_and_none_is_needed() {
        let root = tempfile::tempdir().expect("temporary directory");
        assert_eq!(hints(root.path(), "6.1.0"), Vec::<String>::new());
        fs::write(root.path().join(".dockerenv"), "").expect("written");
        fs::create_dir_all(root.path().join("proc/self/ns")).expect("directories");
        std::os::unix::fs::symlink("pid:[4026532001]", root.path().join("proc/self/ns/pid")).expect("a link");
        std::os::unix::fs::symlink("user:[4026531837]", root.path().join("proc/self/ns/user")).expect("a link");
        fs::write(root.path().join("proc/version"), "Linux version 4.4.0 (gVisor)").expect("written");
        let hints = hints(root.path(), "5.15.0-microsoft-standard-WSL2");
        let wanted = ["Docker", "process-id namespace", "WSL2", "gVisor"];
        assert_eq!(hints.len(), wanted.len(), "{hints:?}");
        assert!(hints.iter().zip(wanted).all(|(hint, part)| hint.contains(part)), "{hints:?}");
    }
}

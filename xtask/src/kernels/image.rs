//! The guest's initramfs: busybox, the modules that the host's root is mounted with, and the two scripts.

use super::debian::Kernel;
use crate::dist::output;
use anyhow::{Context, Result, bail, ensure};
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the guest cannot do without; each may be a part of the kernel instead.
const MODULES: [&str; 4] = ["virtio_pci", "9pnet_virtio", "9p", "overlay"];

/// Writes the initramfs of this kernel; `directories` are those of the host that the guest is to see wherever they lie.
///
/// # Errors
/// Without busybox, xz, or one of the modules.
pub fn initramfs(kernel: &Kernel, directories: &[PathBuf], place: &Path) -> Result<PathBuf> {
    let root = place.join("initramfs");
    let _ = fs::remove_dir_all(&root);
    for directory in ["modules", "dev", "proc", "sys"] {
        fs::create_dir_all(root.join(directory))?;
    }
    let busybox = fs::read("/bin/busybox").context("/bin/busybox (package busybox-static)")?;
    // The kernel would find no loader for it, and say of /init that it is missing.
    ensure!(!has_interpreter(&busybox), "/bin/busybox needs a loader: install busybox-static instead of busybox");
    fs::write(root.join("busybox"), busybox)?;
    fs::set_permissions(root.join("busybox"), fs::Permissions::from_mode(0o755))?;
    for (name, text) in [("init", include_str!("init.sh")), ("guest.sh", include_str!("guest.sh"))] {
        fs::write(root.join(name), text)?;
        fs::set_permissions(root.join(name), fs::Permissions::from_mode(0o755))?;
    }
    let listed: Vec<_> = directories.iter().map(|directory| format!("{}\n", directory.display())).collect();
    fs::write(root.join("directories"), listed.concat())?;
    let order = copy_modules(kernel, &root.join("modules"))?;
    fs::write(root.join("modules/order"), order.iter().map(|name| format!("{name}\n")).collect::<String>())?;
    let archive = place.join("initramfs.cpio");
    let pack = "cd \"$1\" && find . | /bin/busybox cpio -o -H newc >\"$2\"";
    output(Command::new("sh").args(["-c", pack, "sh"]).arg(&root).arg(std::path::absolute(&archive)?))?;
    Ok(archive)
}

/// Does a 64-bit ELF program name a loader? `elf(5)`, PT_INTERP.
fn has_interpreter(program: &[u8]) -> bool {
    const PT_INTERP: &[u8] = &3u32.to_le_bytes();
    let number = |at: usize, length: usize| {
        let bytes = program.get(at..at + length).unwrap_or_default();
        bytes.iter().rev().fold(0, |number, &byte| number << 8 | usize::from(byte))
    };
    let (first, size, count) = (number(32, 8), number(54, 2), number(56, 2));
    (0..count).any(|n| program.get(first + n * size..first + n * size + 4) == Some(PT_INTERP))
}

/// Copies the modules and those they depend on, and names the files in the order in which they can be loaded.
fn copy_modules(kernel: &Kernel, to: &Path) -> Result<Vec<String>> {
    let mut files = HashMap::new();
    index(&kernel.modules.join("kernel"), &mut files)?;
    let builtin = fs::read_to_string(kernel.modules.join("modules.builtin")).context("modules.builtin")?;
    let builtin: Vec<_> = builtin.lines().map(|line| name_of(Path::new(line))).collect();
    let mut order = Vec::new();
    for module in MODULES {
        copy_module(module, &files, &builtin, to, &mut order)?;
    }
    Ok(order)
}

fn copy_module(
    name: &str,
    files: &HashMap<String, PathBuf>,
    builtin: &[String],
    to: &Path,
    order: &mut Vec<String>,
) -> Result<()> {
    let target = format!("{name}.ko");
    if order.contains(&target) || builtin.iter().any(|other| other == name) {
        return Ok(());
    }
    let Some(file) = files.get(name) else { bail!("no module {name}") };
    let content = unpacked(file)?;
    for needed in depends(&content) {
        copy_module(&needed, files, builtin, to, order)?;
    }
    fs::write(to.join(&target), content)?;
    order.push(target);
    Ok(())
}

/// The module's name: without its endings, and as the kernel spells it.
fn name_of(file: &Path) -> String {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    name.split(".ko").next().unwrap_or("").replace('-', "_")
}

fn index(directory: &Path, files: &mut HashMap<String, PathBuf>) -> Result<()> {
    for entry in fs::read_dir(directory).with_context(|| format!("{}", directory.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            index(&path, files)?;
        } else if path.to_string_lossy().contains(".ko") {
            files.insert(name_of(&path), path);
        }
    }
    Ok(())
}

fn unpacked(file: &Path) -> Result<Vec<u8>> {
    if file.extension().is_some_and(|ending| ending == "ko") {
        return Ok(fs::read(file)?);
    }
    let tool = if file.extension().is_some_and(|ending| ending == "zst") { "zstd" } else { "xz" };
    let done = Command::new(tool).arg("-dc").arg(file).output().with_context(|| tool.to_owned())?;
    ensure!(done.status.success(), "{tool} of {}: {}", file.display(), done.status);
    Ok(done.stdout)
}

/// The `depends=` of a module's information: names with commas between them.
fn depends(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|window| window == KEY) else { return Vec::new() };
    let list = module[at + KEY.len()..].split(|&byte| byte == 0).next().unwrap_or_default();
    let list = String::from_utf8_lossy(list);
    list.split(',').filter(|name| !name.is_empty()).map(|name| name.replace('-', "_")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_read_from_a_module() {
        assert_eq!(depends(b"ELF\0license=GPL\0depends=9pnet,virtio-ring\0name=x\0"), ["9pnet", "virtio_ring"]);
        assert!(depends(b"ELF\0depends=\0").is_empty());
        assert!(depends(b"ELF").is_empty());
    }

    #[test]
    fn a_program_with_a_loader_is_told_from_a_static_one() {
        // An ELF header, and one program header after it.
        let program = |kind: u8| {
            let mut bytes = vec![0; 64 + 56];
            (bytes[32], bytes[54], bytes[56], bytes[64]) = (64, 56, 1, kind);
            bytes
        };
        assert!(has_interpreter(&program(3)));
        assert!(!has_interpreter(&program(1)) && !has_interpreter(b"#!/bin/sh\n"));
    }

    #[test]
    fn a_module_is_named_as_the_kernel_spells_it() {
        assert_eq!(name_of(Path::new("kernel/drivers/net/virtio-net.ko.xz")), "virtio_net");
    }
}

//! The guest's initramfs: busybox, the modules that the host's root is mounted with, and the two scripts.

use super::debian::UnpackedKernel;
use anyhow::{Context, Result, bail, ensure};
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use testing::dist::output;

/// Modules that the guest needs. Each may be built into the kernel instead.
const MODULES: [&str; 4] = ["virtio_pci", "9pnet_virtio", "9p", "overlay"];

/// Static programs.
pub struct Busybox {
    /// Runs on this machine.
    pub ours: PathBuf,
    /// Runs in the guest, which may have another architecture.
    pub guests: PathBuf,
}

/// Writes the initramfs of this kernel; `directories` are those of the host that the guest is to see wherever they lie. `system` is
/// the root of the guest's system, unless it is the host's.
///
/// # Errors
/// Without xz, or one of the modules.
pub fn initramfs(
    kernel: &UnpackedKernel,
    busybox: &Busybox,
    system: Option<&Path>,
    directories: &[PathBuf],
    place: &Path,
) -> Result<PathBuf> {
    let root = place.join("initramfs");
    let _ = fs::remove_dir_all(&root);
    for directory in ["modules", "dev", "proc", "sys"] {
        fs::create_dir_all(root.join(directory))?;
    }
    fs::copy(&busybox.guests, root.join("busybox")).with_context(|| format!("{}", busybox.guests.display()))?;
    for (name, text) in [("init", include_str!("init.sh")), ("guest.sh", include_str!("guest.sh"))] {
        fs::write(root.join(name), text)?;
        fs::set_permissions(root.join(name), fs::Permissions::from_mode(0o755))?;
    }
    let listed: Vec<_> = directories.iter().map(|directory| format!("{}\n", directory.display())).collect();
    fs::write(root.join("directories"), listed.concat())?;
    fs::write(root.join("system"), format!("{}\n", system.unwrap_or(Path::new("/")).display()))?;
    let order = copy_modules(kernel, &root.join("modules"))?;
    fs::write(root.join("modules/order"), order.iter().map(|name| format!("{name}\n")).collect::<String>())?;
    let archive = place.join("initramfs.cpio");
    let pack = "cd \"$1\" && find . | \"$3\" cpio -o -H newc >\"$2\"";
    output(
        Command::new("sh").args(["-c", pack, "sh"]).arg(&root).arg(std::path::absolute(&archive)?).arg(&busybox.ours),
    )?;
    Ok(archive)
}

/// Copies the modules and those they depend on, and names the files in the order in which they can be loaded.
fn copy_modules(kernel: &UnpackedKernel, to: &Path) -> Result<Vec<String>> {
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
    fn a_module_is_named_as_the_kernel_spells_it() {
        assert_eq!(name_of(Path::new("kernel/drivers/net/virtio-net.ko.xz")), "virtio_net");
    }
}

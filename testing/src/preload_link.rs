//! Links the preload library, by compiler and linker alone, so that a program that starts no other pays little for it:
//! docs/design/preload-cost.md.
//!
//! The library is linked twice. The first link shows which of libc's functions it calls. In the second, each of these calls goes
//! through the procedure linkage table (`crates/preload/c/calls.S`), so that the loader looks the function up when it is first called.

use crate::{output, root, run};
use anyhow::Result;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Libraries that glibc before 2.34 has beside `libc.so`.
pub const SEPARATE: [&str; 2] = ["-lpthread", "-ldl"];

/// Functions of libc that the compiler may call by itself, in a child that shares memory too. Such a child must not enter the
/// loader, so these are looked up at the start. The linker recognizes calls of `__tls_get_addr`.
const AT_START: [&str; 7] = ["memcpy", "memmove", "memset", "memcmp", "bcmp", "strlen", "__tls_get_addr"];

/// Links `library` from `archive`, with temporary files beside it.
///
/// # Errors
/// If cc or readelf fails.
pub(crate) fn link(archive: &Path, library: &Path) -> Result<()> {
    let parts = library.with_extension("parts");
    fs::create_dir_all(&parts)?;
    let link = Link { archive, map: version_script(&parts)?, parts: &parts };
    link.link(library, &BTreeSet::new())?;
    link.link(library, &functions_of_libc(library)?)?;
    Ok(fs::remove_dir_all(parts)?)
}

struct Link<'a> {
    archive: &'a Path,
    map: PathBuf,
    parts: &'a Path,
}

impl Link<'_> {
    /// `libc`: the functions that the loader looks up at the first call.
    fn link(&self, library: &Path, libc: &BTreeSet<String>) -> Result<()> {
        let list = |line: fn(&String) -> String| libc.iter().map(line).collect::<String>();
        fs::write(self.parts.join("calls.list"), list(|name| format!("CALL {name}\n")))?;
        let wraps = self.parts.join("wraps");
        fs::write(&wraps, list(|name| format!("--wrap={name}\n")))?;
        let mut link = Command::new("cc");
        // Without gcc's start files: their initialization functions do nothing here, and cost each program page faults.
        link.args(["-shared", "-nostartfiles", "-o"]).arg(library).arg("-Wl,-soname,libforkless_preload.so");
        link.arg(format!("-Wl,--version-script={}", self.map.display()));
        link.arg(format!("-Wl,@{}", wraps.display()));
        for source in ["versions.S", "calls.S", "handle.c"] {
            link.arg(self.compile(source)?);
        }
        link.arg("-Wl,--whole-archive").arg(self.archive).arg("-Wl,--no-whole-archive");
        link.arg("-Wl,--gc-sections,-s,-Bsymbolic-functions,-z,noseparate-code,-z,defs,-z,norelro,-z,lazy,-z,nodelete");
        // Every program loads this library, so it must not load another one.
        run(link.args(["-static-libgcc", "-lgcc_eh", "-Wl,--as-needed"]).args(SEPARATE))
    }

    fn compile(&self, file: &str) -> Result<PathBuf> {
        let object = self.parts.join(format!("{file}.o"));
        let mut compile = Command::new("cc");
        compile.args(["-c", "-O2", "-fPIC", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I"]).arg(self.parts);
        run(compile.arg(root().join("crates/preload/c").join(file)).arg("-o").arg(&object))?;
        Ok(object)
    }
}

/// The version script. On a machine where glibc's functions have other versions than on x86-64, it has the same names without
/// versions, which match each version.
fn version_script(parts: &Path) -> Result<PathBuf> {
    let map = root().join("crates/preload/libforkless_preload.map");
    if cfg!(target_arch = "x86_64") {
        return Ok(map);
    }
    let text = fs::read_to_string(map)?;
    let lines = text.lines().map(str::trim).filter(|line| line.ends_with(';') && !line.contains(['*', '}']));
    let names: BTreeSet<_> = lines.collect();
    let plain = parts.join("plain.map");
    fs::write(&plain, format!("{{\nglobal:\n{}\nlocal:\n*;\n}};\n", names.into_iter().collect::<Vec<_>>().join("\n")))?;
    Ok(plain)
}

/// The functions that the loader would look up at the start, except those of [`AT_START`] and weak ones.
fn functions_of_libc(library: &Path) -> Result<BTreeSet<String>> {
    let listed = output(Command::new("readelf").args(["--dyn-syms", "--wide"]).arg(library).env("LC_ALL", "C"))?;
    let names = listed.lines().filter_map(|line| {
        // Number, value, size, type, binding, visibility, section, name and version.
        let fields: Vec<_> = line.split_whitespace().collect();
        let is_wanted =
            fields.get(3) == Some(&"FUNC") && fields.get(4) == Some(&"GLOBAL") && fields.get(6) == Some(&"UND");
        let name = fields.get(7)?.split('@').next()?;
        (is_wanted && !AT_START.contains(&name)).then(|| name.to_owned())
    });
    Ok(names.collect())
}

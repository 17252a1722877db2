//! The code that runs in the child calls no function outside of itself: checked in its compiled library.

testing::usual_surroundings!();

use object::elf::{SHF_TLS, SHF_WRITE};
use object::{Object, ObjectSection, ObjectSymbol, SectionFlags};
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Functions that the library may import. It needs none.
const ALLOWED: &[&str] = &[];

/// The symbols that a library imports and defines.
#[derive(Debug, Default)]
struct Library {
    objects: usize,
    undefined: BTreeSet<String>,
    defined: BTreeSet<String>,
    /// Writable sections, including thread-local ones.
    writable: BTreeSet<String>,
}

impl Library {
    fn read(path: &Path) -> Self {
        let data = fs::read(path).expect("the library");
        let archive = object::read::archive::ArchiveFile::parse(&*data).expect("an archive");
        let mut library = Self::default();
        for member in archive.members() {
            let member = member.expect("a member");
            if member.name() == b"lib.rmeta" {
                continue;
            }
            let object = object::File::parse(member.data(&*data).expect("data")).expect("an object file");
            library.objects += 1;
            for symbol in object.symbols() {
                let name = symbol.name().expect("a name").to_owned();
                if symbol.is_undefined() && !name.is_empty() {
                    library.undefined.insert(name);
                } else if symbol.is_definition() {
                    library.defined.insert(name);
                }
            }
            for section in object.sections() {
                let name = section.name().expect("a name");
                let SectionFlags::Elf { sh_flags, .. } = section.flags() else { continue };
                // Constants with addresses are written once, by the loader.
                let constant = name.starts_with(".data.rel.ro");
                if sh_flags.0 & (SHF_WRITE.0 | SHF_TLS.0) != 0 && section.size() > 0 && !constant {
                    library.writable.insert(name.to_owned());
                }
            }
        }
        library
    }

    /// Symbols that are neither its own nor allowed.
    fn violations(&self) -> Vec<&str> {
        let foreign = self.undefined.iter().filter(|name| !self.defined.contains(*name));
        let foreign = foreign.filter(|name| !ALLOWED.contains(&name.as_str()));
        foreign.chain(&self.writable).map(String::as_str).collect()
    }
}

/// Builds a library with cargo and returns its file. None if cargo cannot be used here.
fn build(directory: &Path, args: &[&str], target: &Path, library: &str) -> Option<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| env!("CARGO").into());
    let output = Command::new(cargo)
        .current_dir(directory)
        .args(["build", "--offline", "--quiet"])
        // Libraries that are optimized when they are linked contain the compiler's own code, not the machine's.
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .args(args)
        .arg("--target-dir")
        .arg(target)
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTFLAGS")
        .output();
    let problem = match output {
        Ok(output) if output.status.success() => return Some(find(target, library)),
        Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
        Err(error) => error.to_string(),
    };
    // A tree or a cargo home that this user cannot write to is not a failure of the library; a failing build is.
    let not_ours = fs::metadata(env!("CARGO_MANIFEST_DIR")).is_ok_and(|meta| {
        // SAFETY: a number.
        std::os::unix::fs::MetadataExt::uid(&meta) != unsafe { libc::geteuid() }
    });
    assert!(not_ours, "cargo build failed: {problem}");
    let text = format!("SKIPPED: symbols of {library} because cargo cannot build as this user: {problem}\n");
    let _ = io::stderr().write_all(text.as_bytes());
    None
}

fn find(target: &Path, library: &str) -> PathBuf {
    let mut found: Vec<PathBuf> =
        ["release", "debug"].iter().map(|profile| target.join(profile).join(library)).collect();
    found.retain(|path| path.exists());
    assert_eq!(found.len(), 1, "{library} in {}", target.display());
    found.remove(0)
}

fn assert_closed(args: &[&str]) {
    let target = tempfile::tempdir().expect("a temporary directory");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let args = [&["-p", "forkless-core"], args].concat();
    let Some(path) = build(root, &args, target.path(), "libforkless_core.rlib") else { return };
    let library = Library::read(&path);
    assert!(library.objects > 0 && library.defined.iter().any(|name| name.contains("play")), "{library:?}");
    assert_eq!(library.violations(), [""; 0], "what the child's part may not use");
}

#[test]
fn the_release_library_calls_nothing_outside() {
    assert_closed(&["--release"]);
}

/// The code of debug builds runs in shared memory too.
#[test]
fn the_debug_library_calls_nothing_outside() {
    assert_closed(&[]);
}

/// Negative control: a planted library with a panic, a call of libc and a variable is detected.
#[test]
fn a_planted_violation_is_detected() {
    const MANIFEST: &str = "[package]\nname = \"planted\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n";
    const SOURCE: &str = r#"
#![no_std]
use core::sync::atomic::{AtomicU32, Ordering};
unsafe extern "C" { fn malloc(size: usize) -> *mut u8; }
static COUNT: AtomicU32 = AtomicU32::new(1);
#[inline(never)]
pub fn index(of: &[u8], at: usize) -> u8 { of[at] }
#[inline(never)]
pub fn allocate() -> *mut u8 { unsafe { malloc(1) } }
#[inline(never)]
pub fn count() -> u32 { COUNT.fetch_add(1, Ordering::Relaxed) }
"#;
    let directory = tempfile::tempdir().expect("a temporary directory");
    fs::create_dir(directory.path().join("src")).expect("mkdir");
    fs::write(directory.path().join("Cargo.toml"), MANIFEST).expect("write");
    fs::write(directory.path().join("src/lib.rs"), SOURCE).expect("write");
    let target = directory.path().join("target");
    let Some(path) = build(directory.path(), &["--release"], &target, "libplanted.rlib") else { return };
    let library = Library::read(&path);
    let violations = library.violations();
    for planted in ["panic_bounds_check", "malloc", ".data"] {
        assert!(violations.iter().any(|found| found.contains(planted)), "{planted} is not among {violations:?}");
    }
}

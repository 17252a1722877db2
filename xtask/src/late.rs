//! Links the preload library so that a program that starts no other pays little for it: docs/design/late.md.
//!
//! The library is linked twice. The first link shows which of libc's functions it calls. In the second, each call goes through
//! a procedure linkage table, so that the loader looks the function up when it is first called; and the exported functions are
//! those of `crates/preload/c/late.S`. Then the relocations that only add the load address are hidden from the loader:
//! `crates/preload/c/late.c` does them.

use crate::dist::{SEPARATE, root, run};
use anyhow::{Context, Result, bail, ensure};
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{LittleEndian, Object, ObjectSection, ObjectSymbol, RelocationFlags, SymbolKind};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Functions of libc that the compiler may call by itself, in a child that shares memory too. Such a child must not enter the
/// loader, so these are looked up at the start. The linker knows the calls of the last one.
const AT_START: [&str; 7] = ["memcpy", "memmove", "memset", "memcmp", "bcmp", "strlen", "__tls_get_addr"];

/// Exported functions with a part in `late.c`.
const EARLY: [&str; 3] = ["fclose", "pclose", "prctl"];

/// Exported functions that `late.S` defines itself, because they have two versions.
const TWICE: [&str; 2] = ["posix_spawn", "posix_spawnp"];

/// Tags of the dynamic section for `late.c`: the address of the table, and the number of relocations in it.
const TABLE: elf::DynamicTag = elf::DynamicTag(0x6000_f001);
const COUNT: elf::DynamicTag = elf::DynamicTag(0x6000_f002);

/// Type of the program header that tells `late.c` which pages to make read-only, in place of PT_GNU_RELRO.
const READ_ONLY: elf::ProgramType = elf::ProgramType(0x6000_f003);

/// The relocation that adds the load address, and the one that is a pointer.
#[cfg(target_arch = "x86_64")]
const RELATIVE_AND_POINTER: [elf::RelocationType; 2] = [elf::R_X86_64_RELATIVE, elf::R_X86_64_64];
#[cfg(target_arch = "aarch64")]
const RELATIVE_AND_POINTER: [elf::RelocationType; 2] = [elf::R_AARCH64_RELATIVE, elf::R_AARCH64_ABS64];

/// Links `library` from `archive`, with temporary files beside it. `defers`: relocations are left to the first launch. Otherwise
/// the loader does them, and runs initialization functions.
///
/// # Errors
/// If cc or objcopy fails, or if a relocation cannot be done late.
pub(crate) fn link(archive: &Path, library: &Path, defers: bool) -> Result<()> {
    let parts = library.with_extension("parts");
    fs::create_dir_all(&parts)?;
    let map = version_script(&parts)?;
    let first = Link { archive, map: &map, parts: &parts, libc: BTreeSet::new() };
    first.link(library)?;
    Link { libc: functions_of_libc(library)?, ..first }.link(library)?;
    if defers {
        let mut bytes = fs::read(library)?;
        defer(&mut bytes).and_then(|()| fill(&mut bytes)).with_context(|| format!("{}", library.display()))?;
        fs::write(library, bytes)?;
    }
    Ok(fs::remove_dir_all(parts)?)
}

struct Link<'a> {
    archive: &'a Path,
    map: &'a Path,
    parts: &'a Path,
    /// Functions that the loader looks up at the first call.
    libc: BTreeSet<String>,
}

impl Link<'_> {
    fn link(&self, library: &Path) -> Result<()> {
        let (list, renames) = self.names()?;
        fs::write(self.parts.join("late.list"), list)?;
        let (names, renamed) = (self.parts.join("late.names"), self.parts.join("late.a"));
        fs::write(&names, renames)?;
        let mut rename = Command::new("objcopy");
        run(rename.arg(format!("--redefine-syms={}", names.display())).arg(self.archive).arg(&renamed))?;

        let mut link = Command::new("cc");
        link.args(["-shared", "-nostartfiles", "-o"]).arg(library).arg("-Wl,-soname,libforkless_preload.so");
        link.arg(format!("-Wl,--version-script={}", self.map.display()));
        link.arg(self.compile("late.S")?).arg(self.compile("late.c")?);
        link.arg("-Wl,--whole-archive").arg(&renamed).arg("-Wl,--no-whole-archive");
        link.arg("-Wl,--gc-sections,-s,-Bsymbolic-functions,-z,noseparate-code,-z,defs,-z,relro,-z,lazy,-z,nodelete");
        // Every program loads this library, so it must not load another one.
        run(link.args(["-static-libgcc", "-lgcc_eh", "-Wl,--as-needed"]).args(SEPARATE))
    }

    /// The lines of `late.list`, and the new names of functions in the archive.
    fn names(&self) -> Result<(String, String)> {
        let (mut list, mut renames) = (String::new(), String::new());
        for (name, version) in entries(&fs::read_to_string(self.map)?) {
            if TWICE.contains(&name.as_str()) {
                continue;
            }
            writeln!(renames, "{name} forkless_own_{name}")?;
            match EARLY.contains(&name.as_str()) {
                true => writeln!(list, "EARLY {name}")?,
                false => writeln!(list, "ENTRY {name}, \"{version}\"")?,
            }
        }
        for name in &self.libc {
            writeln!(renames, "{name} forkless_libc_{name}")?;
            writeln!(list, "LIBC {name}")?;
        }
        Ok((list, renames))
    }

    /// Compiles a file that runs before the relocations are done: it must have no pointer in its data.
    fn compile(&self, file: &str) -> Result<PathBuf> {
        let object = self.parts.join(format!("{file}.o"));
        let mut compile = Command::new("cc");
        compile.args(["-c", "-O2", "-fPIC", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I"]).arg(self.parts);
        run(compile.arg(root().join("crates/preload/c").join(file)).arg("-o").arg(&object))?;
        let bytes = fs::read(&object)?;
        for section in object::File::parse(&*bytes)?.sections() {
            for (_, relocation) in section.relocations() {
                let pointer = RelocationFlags::Elf { r_type: RELATIVE_AND_POINTER[1] };
                ensure!(relocation.flags() != pointer, "{file}: a pointer in {}", section.name()?);
            }
        }
        Ok(object)
    }
}

/// The version script. On a machine where glibc's functions have other versions than on x86-64, it has the same names without
/// versions: these stand for each.
fn version_script(parts: &Path) -> Result<PathBuf> {
    let map = root().join("crates/preload/libforkless_preload.map");
    if cfg!(target_arch = "x86_64") {
        return Ok(map);
    }
    let names: BTreeSet<_> =
        entries(&fs::read_to_string(map)?).into_iter().map(|(name, _)| format!("{name};\n")).collect();
    let plain = parts.join("plain.map");
    fs::write(&plain, format!("{{\nglobal:\n{}local:\n*;\n}};\n", names.into_iter().collect::<String>()))?;
    Ok(plain)
}

/// The exported functions of a version script, each with its versions.
fn entries(map: &str) -> BTreeSet<(String, String)> {
    let mut entries = BTreeSet::new();
    let mut version = "";
    for line in map.lines().map(str::trim) {
        if let Some(name) = line.strip_suffix('{') {
            version = name.trim();
        } else if let Some(name) = line.strip_suffix(';').filter(|name| !name.contains(['*', '}'])) {
            entries.insert((name.to_owned(), version.to_owned()));
        }
    }
    entries
}

/// The functions that the loader would look up at the start, but for those of [`AT_START`] and those that may be missing.
fn functions_of_libc(library: &Path) -> Result<BTreeSet<String>> {
    let bytes = fs::read(library)?;
    let file = object::File::parse(&*bytes)?;
    let undefined = file.dynamic_symbols().filter(|symbol| symbol.is_undefined() && !symbol.is_weak());
    let functions = undefined.filter(|symbol| symbol.kind() == SymbolKind::Text);
    let names = functions.map(|symbol| Ok(symbol.name()?.to_owned())).collect::<Result<BTreeSet<_>>>()?;
    Ok(names.into_iter().filter(|name| !AT_START.contains(&name.as_str())).collect())
}

/// Hides the relocations that only add the load address from the loader, and tells `late.c` where they are. It hides the
/// initialization functions too: there is that of Rust's standard library, for the arguments of `main`, which are not used, and that
/// of forkless, which looks for seccomp filters, for zygotes and keepers: this library has none.
fn defer(bytes: &mut [u8]) -> Result<()> {
    let header = FileHeader64::<LittleEndian>::parse(&*bytes)?;
    let segments = header.program_headers(LittleEndian, &*bytes)?;
    let places = |kind: elf::ProgramType| {
        let segments = segments.iter().filter(move |one| one.p_type(LittleEndian) == kind);
        segments.map(|one| (one.p_vaddr(LittleEndian), one.p_memsz(LittleEndian), one.p_offset(LittleEndian)))
    };
    let loaded: Vec<_> = places(elf::PT_LOAD).collect();
    let in_file = |address: u64| {
        let found = loaded.iter().find(|(start, size, _)| (*start..start + size).contains(&address));
        found.map(|(start, _, offset)| (address - start + offset) as usize).context("an address outside the library")
    };
    let read_only = places(elf::PT_GNU_RELRO).next().context("no RELRO")?;
    let read_only = read_only.0..read_only.0 + read_only.1;
    // Only what is in the file: the rest has addresses that other data has too.
    let thread = segments.iter().find(|one| one.p_type(LittleEndian) == elf::PT_TLS);
    let thread =
        thread.map_or(0..0, |one| one.p_vaddr(LittleEndian)..one.p_vaddr(LittleEndian) + one.p_filesz(LittleEndian));
    let number = segments.iter().position(|one| one.p_type(LittleEndian) == elf::PT_GNU_RELRO).context("no RELRO")?;
    let dynamic = places(elf::PT_DYNAMIC).next().context("no dynamic section")?;
    let dynamic = dynamic.2 as usize..(dynamic.2 + dynamic.1) as usize;

    refuse_unknown_tags(bytes, &dynamic)?;
    let table = value(bytes, &dynamic, elf::DT_RELA)?;
    // The loader calls these functions before or after the program's own code, so it must relocate their addresses.
    let functions = arrays_of_functions(bytes, &dynamic);
    let count = loaders_last(bytes, in_file(table)?, value(bytes, &dynamic, elf::DT_RELACOUNT)?, &functions);
    for n in 0..count {
        let at = in_file(table + n * RELA)?;
        let (place, info) = (word(bytes, at), word(bytes, at + 8));
        ensure!(info == u64::from(RELATIVE_AND_POINTER[0].0), "relocation {n} is of kind {info:#x}");
        ensure!(!thread.contains(&place), "a pointer in thread-local data, which each new thread copies");
        // `late.c` tells by the address without the load address that the relocation of such a place has not been done.
        if !read_only.contains(&place) {
            let (addend, place) = (word(bytes, at + 16), in_file(place)?);
            ensure!([0, addend].contains(&word(bytes, place)), "another value in place of relocation {n}");
            bytes[place..place + 8].copy_from_slice(&addend.to_le_bytes());
        }
    }
    ensure!(value(bytes, &dynamic, elf::DT_INIT_ARRAYSZ)? == 16, "not two functions for initialization");

    change(bytes, &dynamic, elf::DT_RELA, elf::DT_RELA, table + count * RELA)?;
    let size = value(bytes, &dynamic, elf::DT_RELASZ)?;
    change(bytes, &dynamic, elf::DT_RELASZ, elf::DT_RELASZ, size - count * RELA)?;
    let rest = value(bytes, &dynamic, elf::DT_RELACOUNT)? - count;
    change(bytes, &dynamic, elf::DT_RELACOUNT, elf::DT_RELACOUNT, rest)?;
    change(bytes, &dynamic, elf::DT_INIT_ARRAY, TABLE, table)?;
    change(bytes, &dynamic, elf::DT_INIT_ARRAYSZ, COUNT, count)?;
    // `late.c` exchanges these pages for read-only ones, so that the loader need not protect them in a program that starts none.
    let type_at = word(bytes, PHOFF) as usize + number * PHDR;
    bytes[type_at..type_at + 4].copy_from_slice(&READ_ONLY.0.to_le_bytes());
    Ok(())
}

/// The dynamic entries whose meaning stays the same when relocations move: gabi, "Dynamic Section".
const KNOWN: [elf::DynamicTag; 27] = [
    elf::DT_NEEDED,
    elf::DT_SONAME,
    elf::DT_GNU_HASH,
    elf::DT_STRTAB,
    elf::DT_STRSZ,
    elf::DT_SYMTAB,
    elf::DT_SYMENT,
    elf::DT_PLTGOT,
    elf::DT_PLTREL,
    elf::DT_PLTRELSZ,
    elf::DT_JMPREL,
    elf::DT_RELA,
    elf::DT_RELASZ,
    elf::DT_RELAENT,
    elf::DT_RELACOUNT,
    elf::DT_INIT_ARRAY,
    elf::DT_INIT_ARRAYSZ,
    elf::DT_FINI_ARRAY,
    elf::DT_FINI_ARRAYSZ,
    elf::DT_VERDEF,
    elf::DT_VERDEFNUM,
    elf::DT_VERNEED,
    elf::DT_VERNEEDNUM,
    elf::DT_VERSYM,
    elf::DT_FLAGS,
    elf::DT_FLAGS_1,
    elf::DT_NULL,
];

/// A compiler may come with an entry whose table of addresses the loader reads. Hiding their relocations from the loader
/// would make it use addresses without the load address.
fn refuse_unknown_tags(bytes: &[u8], dynamic: &Range<usize>) -> Result<()> {
    for at in dynamic.clone().step_by(16) {
        let tag = word(bytes, at);
        ensure!(KNOWN.iter().any(|known| known.0 as u64 == tag), "the dynamic section has an unknown entry, {tag:#x}");
    }
    Ok(())
}

/// The addresses of the tables of functions that the loader calls.
fn arrays_of_functions(bytes: &[u8], dynamic: &Range<usize>) -> Vec<Range<u64>> {
    let tables = [(elf::DT_FINI_ARRAY, elf::DT_FINI_ARRAYSZ)];
    let range = |(start, size)| Some((value(bytes, dynamic, start).ok()?, value(bytes, dynamic, size).ok()?));
    tables.into_iter().filter_map(range).map(|(start, size)| start..start + size).collect()
}

/// Moves the relocations of these places behind the others. Returns how many come before them.
fn loaders_last(bytes: &mut [u8], table: usize, count: u64, places: &[Range<u64>]) -> u64 {
    let entries = table..table + (count * RELA) as usize;
    let (mut late, mut loaders) = (Vec::new(), Vec::new());
    for entry in bytes[entries.clone()].chunks_exact(RELA as usize) {
        let is_loaders = places.iter().any(|range| range.contains(&word(entry, 0)));
        if is_loaders { &mut loaders } else { &mut late }.extend_from_slice(entry);
    }
    let before = late.len() as u64 / RELA;
    late.extend(loaders);
    bytes[entries].copy_from_slice(&late);
    before
}

/// Writes the zeros of `.bss` to the file. So the loader maps them with the other data, and need not map memory for them or clear
/// the rest of a page, which would copy it.
fn fill(bytes: &mut Vec<u8>) -> Result<()> {
    let header = FileHeader64::<LittleEndian>::parse(&**bytes)?;
    let segments = header.program_headers(LittleEndian, &**bytes)?;
    let is_loaded = |n: &usize| segments[*n].p_type(LittleEndian) == elf::PT_LOAD;
    let last = (0..segments.len()).rfind(is_loaded).context("no segment")?;
    let [offset, address, in_file, in_memory] = {
        let (last, endian) = (&segments[last], LittleEndian);
        [last.p_offset(endian), last.p_vaddr(endian), last.p_filesz(endian), last.p_memsz(endian)]
            .map(|one| one as usize)
    };
    let sections = header.section_headers(LittleEndian, &**bytes)?.len();
    let (end, zeros) = (offset + in_file, (in_memory - in_file).next_multiple_of(16));
    bytes.splice(end..end, std::iter::repeat_n(0, zeros));
    let size_at = word(bytes, PHOFF) as usize + last * PHDR + P_FILESZ;
    set(bytes, size_at, in_memory as u64);
    let table = word(bytes, SHOFF) as usize;
    ensure!(table >= end, "section headers before the end of the data");
    set(bytes, SHOFF, (table + zeros) as u64);
    for at in (0..sections).map(|n| table + zeros + n * SHDR) {
        let is_thread_local = word(bytes, at + SH_FLAGS) & elf::SHF_TLS.0 != 0;
        let kind = &mut bytes[at + 4..at + 8];
        if *kind == elf::SHT_NOBITS.0.to_le_bytes() && !is_thread_local {
            kind.copy_from_slice(&elf::SHT_PROGBITS.0.to_le_bytes());
            let place = offset + word(bytes, at + SH_ADDR) as usize - address;
            set(bytes, at + SH_OFFSET, place as u64);
        } else {
            let offset = word(bytes, at + SH_OFFSET);
            set(bytes, at + SH_OFFSET, offset + if offset as usize >= end { zeros as u64 } else { 0 });
        }
    }
    Ok(())
}

// Places in an ELF file of 64 bits: elf(5).
const PHOFF: usize = 32;
const SHOFF: usize = 40;
const PHDR: usize = 56;
const P_FILESZ: usize = 32;
const SHDR: usize = 64;
const SH_FLAGS: usize = 8;
const SH_ADDR: usize = 16;
const SH_OFFSET: usize = 24;

fn set(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// Size of a relocation.
const RELA: u64 = 24;

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

/// Where the dynamic section has a tag.
fn tagged(bytes: &[u8], dynamic: &Range<usize>, tag: elf::DynamicTag) -> Result<usize> {
    match dynamic.clone().step_by(16).find(|at| word(bytes, *at) == tag.0 as u64) {
        Some(at) => Ok(at),
        None => bail!("no tag {:#x} in the dynamic section", tag.0),
    }
}

fn value(bytes: &[u8], dynamic: &Range<usize>, tag: elf::DynamicTag) -> Result<u64> {
    Ok(word(bytes, tagged(bytes, dynamic, tag)? + 8))
}

fn change(
    bytes: &mut [u8],
    dynamic: &Range<usize>,
    tag: elf::DynamicTag,
    new: elf::DynamicTag,
    value: u64,
) -> Result<()> {
    let at = tagged(bytes, dynamic, tag)?;
    bytes[at..at + 8].copy_from_slice(&new.0.to_le_bytes());
    bytes[at + 8..at + 16].copy_from_slice(&value.to_le_bytes());
    Ok(())
}

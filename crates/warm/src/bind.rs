//! Functions that the loader would look up at their first call are looked up once, in the template: otherwise each child
//! would do that again, with a page fault for most of what it touches.
//!
//! A jump slot is filled only where the loader's result is certain: one object of the process defines the function, with the
//! version that the caller wants, and the loader has loaded that object at the start, so that it is searched for every
//! caller. (A library that is loaded later is searched after those.) All others are left to the loader.
//!
//! Source: the System V ABI, chapter 5 (dynamic linking); "GNU_HASH" and symbol versions as in elf(5) and glibc's
//! elf/dl-lookup.c; `dl_iterate_phdr(3)`.
//!
//! # Safety
//! Runs in the template's only thread, before the program's own code. The objects are mapped as the loader has mapped
//! them, and stay.

use core::ffi::{CStr, c_char, c_int, c_void};
use forkless_core::sys::{self, uapi};

/// The most objects of a process. The functions of a program that has more are left to the loader.
const MOST: usize = 256;

/// `struct dl_phdr_info`, up to the fields that are used.
#[repr(C)]
pub(crate) struct Info {
    pub(crate) base: usize,
    name: *const c_char,
    pub(crate) headers: *const Segment,
    pub(crate) count: u16,
}

/// Elf64_Phdr.
#[repr(C)]
pub(crate) struct Segment {
    pub(crate) kind: u32,
    pub(crate) flags: u32,
    offset: u64,
    pub(crate) address: usize,
    physical: u64,
    in_file: u64,
    pub(crate) length: usize,
    align: u64,
}

/// Elf64_Sym.
#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: usize,
    size: u64,
}

/// Elf64_Rela.
#[repr(C)]
struct Relocation {
    offset: usize,
    info: u64,
    addend: i64,
}

/// A loaded program or library. A null pointer: it does not have this table.
#[repr(C)]
struct Object {
    base: usize,
    /// Its first address, and the one after its last.
    range: (usize, usize),
    /// The addresses that are read-only after relocation.
    protected: (usize, usize),
    is_libc: bool,
    /// Whether it was loaded at the start, as far as that is known: the program, this library, and what they need.
    is_initial: bool,
    is_bound: bool,
    /// The dynamic section: pairs of a tag and a value.
    dynamic: *const [usize; 2],
    /// Its path; empty for the program.
    path: *const c_char,
    /// DT_SONAME; null: none.
    own_name: *const c_char,
    strings: *const c_char,
    symbols: *const Symbol,
    hash: *const u32,
    versions: *const u16,
    needed: *const u8,
    defined: *const u8,
    slots: *const Relocation,
    slot_count: usize,
}

/// The objects, in memory that is unmapped afterwards.
struct Objects {
    first: *mut Object,
    count: usize,
}

unsafe extern "C" {
    fn dl_iterate_phdr(
        each: unsafe extern "C" fn(*const Info, usize, *mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
}

/// Fills the jump slots of the objects that were loaded at the start.
pub(crate) unsafe fn bind_functions() {
    const LENGTH: usize = MOST * size_of::<Object>();
    let (protection, flags) = (uapi::PROT_READ | uapi::PROT_WRITE, uapi::MAP_PRIVATE | uapi::MAP_ANONYMOUS);
    let args = [0, LENGTH, protection as usize, flags as usize, usize::MAX, 0];
    // SAFETY: a new mapping, which only this function uses. The rest is the module's contract.
    unsafe {
        let Ok(memory) = sys::syscall(uapi::__NR_mmap, args) else { return };
        let mut objects = Objects { first: memory as *mut Object, count: 0 };
        if dl_iterate_phdr(note, (&raw mut objects).cast()) == 0 {
            let objects = core::slice::from_raw_parts(objects.first, objects.count);
            for object in objects.iter().filter(|object| object.is_initial && !object.is_bound) {
                bind(object, objects);
            }
        }
        let _ = sys::syscall(uapi::__NR_munmap, [memory, LENGTH, 0, 0, 0, 0]);
    }
}

/// Notes one object. Returns 1, which ends the iteration, if there are too many.
unsafe extern "C" fn note(info: *const Info, _size: usize, objects: *mut c_void) -> c_int {
    // SAFETY: `dl_iterate_phdr` passes a valid structure, and the `Objects` of `bind_functions`.
    unsafe {
        let (info, objects) = (&*info, &mut *objects.cast::<Objects>());
        if objects.count == MOST {
            return 1;
        }
        if let Some(mut object) = object(info) {
            let earlier = core::slice::from_raw_parts(objects.first, objects.count);
            let is_this = (object.range.0..object.range.1).contains(&(note as *const () as usize));
            object.is_initial = earlier.is_empty() || is_this || earlier.iter().any(|other| has_needed(other, &object));
            objects.first.add(objects.count).write(object);
            objects.count += 1;
        }
    }
    0
}

/// Whether an object that was loaded at the start needs another one. The loader lists an object before those it needs.
unsafe fn has_needed(object: &Object, other: &Object) -> bool {
    const DT_NEEDED: usize = 1;
    // SAFETY: the loader's tables (module contract). The dynamic section ends in a zero tag.
    unsafe {
        let mut entry = object.dynamic;
        while object.is_initial && (*entry)[0] != 0 {
            if (*entry)[0] == DT_NEEDED {
                let name = CStr::from_ptr(object.strings.add((*entry)[1]));
                let is_own = !other.own_name.is_null() && CStr::from_ptr(other.own_name) == name;
                if is_own || CStr::from_ptr(other.path) == name {
                    return true;
                }
            }
            entry = entry.add(1);
        }
    }
    false
}

/// Returns `None` if the object has no symbol table.
unsafe fn object(info: &Info) -> Option<Object> {
    const PT_LOAD: u32 = 1;
    const PT_DYNAMIC: u32 = 2;
    const PT_GNU_RELRO: u32 = 0x6474_e552;
    let mut dynamic: *const [usize; 2] = core::ptr::null();
    let (mut range, mut protected) = ((usize::MAX, 0), (0, 0));
    // SAFETY: the loader's structures (module contract). The dynamic section ends in a zero tag.
    unsafe {
        for n in 0..usize::from(info.count) {
            let segment = &*info.headers.add(n);
            let start = info.base.wrapping_add(segment.address);
            let end = start.wrapping_add(segment.length);
            match segment.kind {
                PT_LOAD => range = (range.0.min(start), range.1.max(end)),
                PT_DYNAMIC => dynamic = start as *const [usize; 2],
                PT_GNU_RELRO => protected = (start, end),
                _ => {}
            }
        }
        if dynamic.is_null() {
            return None;
        }
        let start = dynamic;
        let (mut found, mut own_name) = ([0usize; 8], None);
        let (mut is_bound, mut is_rela, mut slots_length) = (false, false, 0);
        // STRTAB, SYMTAB, GNU_HASH, VERSYM, VERNEED, VERDEF, JMPREL.
        const TABLES: [usize; 7] = [5, 6, 0x6fff_fef5, 0x6fff_fff0, 0x6fff_fffe, 0x6fff_fffc, 23];
        while (*dynamic)[0] != 0 {
            let [tag, value] = *dynamic;
            match tag {
                2 => slots_length = value,
                14 => own_name = Some(value),
                // PLTREL: RELA.
                20 => is_rela = value == 7,
                // BIND_NOW, and the flags of the same meaning.
                24 => is_bound = true,
                30 => is_bound |= value & 8 != 0,
                0x6fff_fffb => is_bound |= value & 1 != 0,
                _ => {
                    if let Some(at) = TABLES.iter().position(|&table| table == tag) {
                        // The loader has made it an address, except where the section is read-only.
                        let is_offset = value < range.0;
                        if let Some(place) = found.get_mut(at) {
                            *place = if is_offset { info.base.wrapping_add(value) } else { value };
                        }
                    }
                }
            }
            dynamic = dynamic.add(1);
        }
        let [strings, symbols, hash, versions, needed, defined, slots, _] = found;
        if strings == 0 || symbols == 0 {
            return None;
        }
        Some(Object {
            base: info.base,
            range,
            protected,
            is_initial: false,
            dynamic: start,
            path: info.name,
            own_name: own_name.map_or(core::ptr::null(), |name| (strings as *const c_char).add(name)),
            is_libc: CStr::from_ptr(info.name).to_bytes().ends_with(b"/libc.so.6"),
            is_bound: is_bound || slots == 0 || !is_rela,
            strings: strings as *const c_char,
            symbols: symbols as *const Symbol,
            hash: hash as *const u32,
            versions: versions as *const u16,
            needed: needed as *const u8,
            defined: defined as *const u8,
            slots: slots as *const Relocation,
            slot_count: slots_length / size_of::<Relocation>(),
        })
    }
}

/// Fills the jump slots of an object.
unsafe fn bind(object: &Object, objects: &[Object]) {
    const JUMP_SLOT: u32 = 7;
    for n in 0..object.slot_count {
        // SAFETY: the loader's tables (module contract). A slot outside of the protected part is writable: the loader
        // itself fills it at the first call.
        unsafe {
            let relocation = &*object.slots.add(n);
            let slot = object.base.wrapping_add(relocation.offset);
            let is_protected = (object.protected.0..object.protected.1).contains(&slot);
            if relocation.info as u32 != JUMP_SLOT || relocation.addend != 0 || is_protected {
                continue;
            }
            let slot = slot as *mut usize;
            // A slot points into the object's own PLT until it is filled.
            if !(object.range.0..object.range.1).contains(&*slot) {
                continue;
            }
            if let Some(function) = look_up(object, (relocation.info >> 32) as usize, objects) {
                slot.write(function);
            }
        }
    }
}

/// The function to which the loader would resolve a symbol of an object, if that is certain.
unsafe fn look_up(object: &Object, number: usize, objects: &[Object]) -> Option<usize> {
    const IFUNC: u8 = 10;
    // SAFETY: the loader's tables (module contract).
    unsafe {
        let symbol = &*object.symbols.add(number);
        // The loader does not look up a symbol that is visible only inside its object.
        if symbol.other & 3 != 0 {
            return None;
        }
        let name = text(object, symbol.name);
        let wanted = version_of(object, number)?;
        let hash = name.to_bytes().iter().fold(5381u32, |hash, &byte| hash.wrapping_mul(33).wrapping_add(byte.into()));
        let mut definition = None;
        for candidate in objects {
            // An object without DT_GNU_HASH may define any name.
            if candidate.hash.is_null() {
                return None;
            }
            match defines(candidate, name, hash, wanted) {
                Defines::Nothing => {}
                Defines::Another => return None,
                Defines::It(_) if !candidate.is_initial => return None,
                Defines::It(_) if definition.is_some() => return None,
                Defines::It(found) => definition = Some((candidate, found)),
            }
        }
        let (candidate, found) = definition?;
        let address = candidate.base.wrapping_add(found.value);
        match found.info & 15 {
            // A resolver selects the function: those of libc depend on the CPU alone.
            IFUNC if candidate.is_libc => Some(core::mem::transmute::<usize, extern "C" fn() -> usize>(address)()),
            IFUNC => None,
            _ => Some(address),
        }
    }
}

/// Whether an object defines a name.
enum Defines<'a> {
    Nothing,
    /// The function, in the version that is wanted.
    It(&'a Symbol),
    /// The name, but in another version, or not a function.
    Another,
}

/// Looks a name up in an object's GNU hash table.
unsafe fn defines<'a>(object: &'a Object, name: &CStr, hash: u32, wanted: Option<&CStr>) -> Defines<'a> {
    let mut answer = Defines::Nothing;
    // SAFETY: the table has four words, the filter, the buckets, and a chain for the symbols from `first` on.
    unsafe {
        let table = object.hash;
        let (buckets, first, words, shift) = (*table, *table.add(1), *table.add(2), *table.add(3));
        let filter = table.add(4).cast::<u64>();
        let word = *filter.add((hash / 64) as usize & (words as usize).wrapping_sub(1));
        if word >> (hash % 64) & word >> ((hash >> (shift % 32)) % 64) & 1 == 0 || buckets == 0 {
            return answer;
        }
        let heads = filter.add(words as usize).cast::<u32>();
        let mut number = *heads.add((hash % buckets) as usize);
        if number < first {
            return answer;
        }
        let chain = heads.add(buckets as usize);
        loop {
            let link = *chain.add((number - first) as usize);
            if (link ^ hash) >> 1 == 0 {
                let symbol = &*object.symbols.add(number as usize);
                /// SHN_ABS: the value is no address in the object.
                const ABSOLUTE: u16 = 0xfff1;
                let (section, kind) = (symbol.section, symbol.info & 15);
                if section != 0 && text(object, symbol.name) == name {
                    // NOTYPE, FUNC, IFUNC.
                    let is_function = matches!(kind, 0 | 2 | 10) && symbol.value != 0 && section != ABSOLUTE;
                    let is_wanted = version_of(object, number as usize) == Some(wanted);
                    match is_function && is_wanted {
                        true => return Defines::It(symbol),
                        false => answer = Defines::Another,
                    }
                }
            }
            if link & 1 != 0 {
                return answer;
            }
            number += 1;
        }
    }
}

/// The version with which an object defines or wants a symbol; `Some(None)`: none. `None`: it is local, or unknown.
unsafe fn version_of(object: &Object, number: usize) -> Option<Option<&CStr>> {
    /// The numbers of a local symbol and of one without a version.
    const LOCAL: u16 = 0;
    const GLOBAL: u16 = 1;
    // SAFETY: the loader's tables (module contract): lists in which each entry has the distance to the next one.
    unsafe {
        if object.versions.is_null() {
            return Some(None);
        }
        let wanted = match *object.versions.add(number) & 0x7fff {
            LOCAL => return None,
            GLOBAL => return Some(None),
            wanted => wanted,
        };
        let word = |at: *const u8, offset: usize| at.add(offset).cast::<u32>().read_unaligned();
        let half = |at: *const u8, offset: usize| at.add(offset).cast::<u16>().read_unaligned();
        let mut entry = object.defined;
        while !entry.is_null() {
            // Elf64_Verdef: index at 4, first name at 12, next at 16.
            if half(entry, 4) & 0x7fff == wanted {
                return Some(Some(text(object, word(entry.add(word(entry, 12) as usize), 0))));
            }
            entry = following(entry, word(entry, 16));
        }
        let mut file = object.needed;
        while !file.is_null() {
            // Elf64_Verneed: first entry at 8, next at 12. Elf64_Vernaux: index at 6, name at 8, next at 12.
            let mut entry = file.add(word(file, 8) as usize);
            while !entry.is_null() {
                if half(entry, 6) & 0x7fff == wanted {
                    return Some(Some(text(object, word(entry, 8))));
                }
                entry = following(entry, word(entry, 12));
            }
            file = following(file, word(file, 12));
        }
    }
    None
}

/// The next entry of a list; null at its end.
unsafe fn following(entry: *const u8, distance: u32) -> *const u8 {
    match distance {
        0 => core::ptr::null(),
        // SAFETY: the distance to the next entry of the same table (caller).
        distance => unsafe { entry.add(distance as usize) },
    }
}

unsafe fn text(object: &Object, offset: u32) -> &CStr {
    // SAFETY: an offset of the object's own table of strings, each of which ends in NUL.
    unsafe { CStr::from_ptr(object.strings.add(offset as usize)) }
}

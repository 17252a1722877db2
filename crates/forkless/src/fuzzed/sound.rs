//! A checker of plans, independent of the code that makes them: every offset and address that a child uses must be
//! inside the arena.

use forkless_core::frame::SLOTS;
use forkless_core::plan::{
    self, ANY_BY_SHELL, BEST_EFFORT, Call, Header, IN_PLACE, MAGIC, MAX_FDS, NOT_PROCFS, Op, OpCode, Origin,
    OriginNumber, STORE, SURELY, TRY_AGAIN, TRY_ALL, VARIABLES, VERSION,
};
use std::mem::offset_of;

/// Reads an arena by checked offsets.
struct ArenaReader<'a> {
    bytes: &'a [u8],
    base: u64,
    faults: Vec<String>,
}

/// The errors in the plan in this arena.
pub(super) fn faults(arena: &[u64]) -> Vec<String> {
    faults_at(arena, arena.as_ptr() as u64)
}

/// The same for a copy of an arena that was relocated to `base`.
pub(super) fn faults_at(arena: &[u64], base: u64) -> Vec<String> {
    // SAFETY: plain numbers, read as bytes.
    let bytes = unsafe { std::slice::from_raw_parts(arena.as_ptr().cast::<u8>(), size_of_val(arena)) };
    let mut reader = ArenaReader { bytes, base, faults: Vec::new() };
    if bytes.len() < size_of::<Header>() {
        return vec!["no header".into()];
    }
    reader.plan();
    reader.faults
}

/// Reads a field of the structure at `$at`.
macro_rules! field {
    ($reader:ident, $at:expr, $structure:ident.$field:ident) => {
        $reader.u32($at as usize + offset_of!($structure, $field))
    };
}

impl ArenaReader<'_> {
    fn u32(&mut self, at: usize) -> u32 {
        let found = at.checked_add(4).and_then(|end| self.bytes.get(at..end));
        found.map(|bytes| u32::from_ne_bytes(bytes.try_into().expect("four bytes"))).unwrap_or_else(|| {
            self.faults.push(format!("a number at {at}, outside"));
            0
        })
    }

    fn u64(&mut self, at: usize) -> u64 {
        let found = at.checked_add(8).and_then(|end| self.bytes.get(at..end));
        found.map(|bytes| u64::from_ne_bytes(bytes.try_into().expect("eight bytes"))).unwrap_or_else(|| {
            self.faults.push(format!("a word at {at}, outside"));
            0
        })
    }

    fn check(&mut self, is: bool, what: impl FnOnce() -> String) {
        if !is {
            self.faults.push(what());
        }
    }

    /// The range of `count` objects of `size` bytes at `at`. Empty if they are not inside the arena.
    fn list(&mut self, what: &str, at: u32, count: u32, size: usize, align: usize) -> std::ops::Range<usize> {
        let (at, bytes) = (at as usize, count as usize * size);
        let inside = at >= size_of::<Header>() && at.is_multiple_of(align) && at + bytes <= self.bytes.len();
        self.check(inside || count == 0, || format!("{what}: {count} at {at}"));
        if inside { at..at + bytes } else { 0..0 }
    }

    fn string(&mut self, what: &str, at: u64) {
        let is = usize::try_from(at).ok().filter(|&at| at >= size_of::<Header>());
        let rest = is.and_then(|at| self.bytes.get(at..));
        self.check(rest.is_some_and(|rest| rest.contains(&0)), || format!("{what}: no string at {at}"));
    }

    fn plan(&mut self) {
        let length = self.bytes.len() as u64;
        let (magic, version) = (field!(self, 0, Header.magic), field!(self, 0, Header.version));
        self.check(magic == MAGIC && version == VERSION, || "another make".into());
        let said = self.u64(offset_of!(Header, len));
        self.check(said == length, || format!("{said} bytes long, not {length}"));
        let base = self.u64(offset_of!(Header, base));
        let lies = self.base;
        self.check(base == lies, || format!("relocated to {base:#x}, lies at {lies:#x}"));
        self.vectors();
        self.numbers();
        let (ops, count) = (field!(self, 0, Header.ops), field!(self, 0, Header.op_count));
        let range = self.list("ops", ops, count, size_of::<Op>(), 8);
        self.check(count > 0 && range.len() == count as usize * size_of::<Op>(), || "no ops".into());
        for (index, at) in range.clone().step_by(size_of::<Op>()).enumerate() {
            self.op(index as u32, count, at);
        }
    }

    /// Checks the argument vector, the environment and the shell's vectors: each word is the address of a string in
    /// the arena, or 0.
    fn vectors(&mut self) {
        let (argv, envp) = (field!(self, 0, Header.argv), field!(self, 0, Header.envp));
        let count = field!(self, 0, Header.pointer_count);
        let range = self.list("vectors", argv, count, 8, 8);
        self.check(range.contains(&(envp as usize)) && envp > argv && envp.is_multiple_of(8), || {
            format!("environment at {envp}")
        });
        let mut last = 1;
        for at in range.clone().step_by(8) {
            let word = self.u64(at);
            if at == envp as usize {
                self.check(last == 0, || "the arguments have no end".into());
            }
            if word != 0 {
                self.string("vectors", word.wrapping_sub(self.base));
            }
            last = word;
        }
        self.check(last == 0, || "the vectors have no end".into());
        let (kept, at_envp) = (self.u64(offset_of!(Header, environment)), self.u64(envp as usize));
        self.check(kept == 0 || at_envp == 0, || "two environments".into());
    }

    /// Checks that pairs and kept numbers are sorted: the child reads both lists in parallel.
    fn numbers(&mut self) {
        let (pairs, count) = (field!(self, 0, Header.pairs), field!(self, 0, Header.pair_count));
        let range = self.list("pairs", pairs, count, 8, 4);
        self.check(count as usize <= MAX_FDS, || format!("{count} pairs"));
        let mut before = -1;
        for at in range.step_by(8) {
            let (source, target) = (OriginNumber::from_number(self.u32(at) as i32).origin(), self.u32(at + 4) as i32);
            let known = !matches!(source, Origin::Slot(slot) if slot >= SLOTS);
            self.check(known && target > before, || format!("pair {source:?} as {target} after {before}"));
            before = target;
        }
        let (keep, count) = (field!(self, 0, Header.keep), field!(self, 0, Header.keep_count));
        let range = self.list("keep", keep, count, 4, 4);
        let mut before = -1;
        for at in range.step_by(4) {
            let number = self.u32(at) as i32;
            self.check(number > before, || format!("{number} is kept after {before}"));
            before = number;
        }
    }

    fn op(&mut self, index: u32, count: u32, at: usize) {
        let (code, flags) = (field!(self, at, Op.code), field!(self, at, Op.flags));
        let [a, b, c] = [field!(self, at, Op.a), field!(self, at, Op.b), field!(self, at, Op.c)];
        let skip = field!(self, at, Op.skip);
        let set = self.u64(at + offset_of!(Op, set));
        self.check((1..=23).contains(&code), || format!("op {index} is {code}"));
        let known = ANY_BY_SHELL | BEST_EFFORT | IN_PLACE | NOT_PROCFS | SURELY | TRY_ALL;
        self.check(flags & !known == 0, || format!("op {index} has flags {flags:#x}"));
        let is_last = index + 1 == count;
        let executes = code == OpCode::Exec as u32 || code == OpCode::ExecFd as u32;
        self.check(executes == is_last, || format!("op {index} of {count} is {code}"));
        self.check(!is_last || flags & BEST_EFFORT == 0, || "exec may fail".into());
        // The exec must never be skipped.
        self.check(skip == 0 || index + skip + 1 < count, || format!("op {index} skips {skip} of {count}"));
        match code {
            _ if code == OpCode::Chdir as u32 => self.string("chdir", a.into()),
            // The kernel refuses an invalid number.
            _ if code == OpCode::Open as u32 => self.string("open", a.into()),
            _ if code == OpCode::Exec as u32 => self.exec(a, b, set),
            _ if code == OpCode::Call as u32 => {
                self.string("what a call is about", c.into());
                self.call(a);
            }
            _ if code == OpCode::Seccomp as u32 => drop(self.list("filter", a, b, 8, 8)),
            _ if code == OpCode::HandBack as u32 => {
                self.check((b as usize) < VARIABLES, || format!("variable {b}"));
            }
            _ => {}
        }
    }

    fn exec(&mut self, list: u32, count: u32, set: u64) {
        for at in self.list("programs", list, count, 4, 4).step_by(4) {
            let program = self.u32(at);
            self.string("program", program.into());
        }
        let (vectors, words) = (set as u32, (set >> 32) as u32);
        if set != 0 {
            let range = self.list("vectors for the shell", vectors, words.saturating_mul(count), 8, 8);
            for vector in range.step_by((words as usize * 8).max(8)) {
                let (first, last) = (self.u64(vector), self.u64(vector + words as usize * 8 - 8));
                self.check(first != 0 && last == 0, || "a vector for the shell without begin or end".into());
            }
        }
    }

    fn call(&mut self, at: u32) {
        let range = self.list("call", at, 1, size_of::<Call>(), 8);
        let at = range.start;
        let (flags, result) = (field!(self, at, Call.flags), field!(self, at, Call.result));
        self.check(result as usize <= VARIABLES, || format!("result in variable {result}"));
        self.check(flags & !(0x3f | 0x3f << 8 | 0x3f << 24 | TRY_AGAIN | STORE) == 0, || {
            format!("a call's flags {flags:#x}")
        });
        for n in 0..6 {
            let arg = self.u64(at + offset_of!(Call, args) + n as usize * 8);
            let is_offset = flags & plan::argument_is_offset(n) != 0;
            let is_variable = flags & plan::argument_is_variable(n) != 0;
            self.check(!(is_offset && is_variable), || "an argument of two kinds".into());
            if is_offset {
                self.check((size_of::<Header>() as u64..self.bytes.len() as u64).contains(&arg), || {
                    format!("data at {arg}")
                });
            }
            let is_address = flags & plan::argument_is_address(n) != 0;
            self.check(!(is_address && (is_offset || is_variable)), || "an argument of two kinds".into());
            if is_variable || is_address {
                self.check((arg as usize) < VARIABLES, || format!("an argument in variable {arg}"));
            }
        }
    }
}

//! The layout of an arena: one allocation, whose size is computed before it is made.

use crate::request::environment::Block;
use forkless_core::plan::{self, Call, Header, MAGIC, Op, OpCode, Pair, VERSION};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// Collects the strings, data and calls that ops refer to. Until [`Arena::finish`] places them, ops refer to strings
/// and data by their offset in the text, and to calls by their number.
pub(crate) struct Arena {
    text: Vec<u8>,
    calls: Vec<Call>,
}

/// An argument of a system call.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Arg {
    /// A number.
    Number(u64),
    /// The address of data in the arena.
    Data(u32),
    /// The result that an earlier call left in a variable.
    Variable(u32),
    /// The address of a variable.
    Address(u32),
}

/// The parts of an arena, besides those that [`Arena`] has collected.
pub(crate) struct Parts<'a> {
    pub(crate) ops: &'a [Op],
    pub(crate) argv: &'a [OsString],
    pub(crate) envp: Environment<'a>,
    pub(crate) pairs: &'a [Pair],
    pub(crate) keep: &'a [i32],
    /// Text offsets of the programs to try.
    pub(crate) candidates: &'a [u32],
    /// Text offset of the shell that runs candidates without a known executable format (ENOEXEC).
    pub(crate) shell: Option<u32>,
}

/// Where the child finds its environment.
pub(crate) enum Environment<'a> {
    /// In the arena.
    Copied(&'a Block),
    /// Outside the arena: a vector of the addresses of its strings, which ends in a zero word.
    Kept(&'a [usize]),
}

impl Arena {
    pub(crate) fn new() -> Self {
        Self { text: Vec::with_capacity(256), calls: Vec::new() }
    }

    /// Adds a string, and returns its offset in the text.
    pub(crate) fn text(&mut self, bytes: &[u8]) -> u32 {
        let offset = self.text.len() as u32;
        self.text.extend_from_slice(bytes);
        self.text.push(0);
        offset
    }

    /// Adds bytes, followed by NUL, at a multiple of 8.
    pub(crate) fn data(&mut self, bytes: &[u8]) -> u32 {
        self.text.resize(self.text.len().next_multiple_of(8), 0);
        self.text(bytes)
    }

    /// Adds 64-bit words.
    pub(crate) fn push_words(&mut self, words: &[u64]) -> u32 {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.data(&bytes)
    }

    /// Adds a call, and returns its number. `result`: the variable that gets the call's result. `accept`: an errno
    /// that does not count as a failure, or 0.
    pub(crate) fn call(&mut self, number: u32, args: &[Arg], result: Option<u32>, accept: i32) -> u32 {
        let accept = accept as u32;
        let mut call = Call { number, flags: 0, result: result.map_or(0, |n| n + 1), accept, args: [0; 6] };
        for ((n, arg), place) in (0..).zip(args).zip(&mut call.args) {
            *place = match *arg {
                Arg::Number(value) => value,
                Arg::Data(offset) => {
                    call.flags |= plan::argument_is_offset(n);
                    offset.into()
                }
                Arg::Variable(variable) => {
                    call.flags |= plan::argument_is_variable(n);
                    variable.into()
                }
                Arg::Address(variable) => {
                    call.flags |= plan::argument_is_address(n);
                    variable.into()
                }
            };
        }
        self.calls.push(call);
        self.calls.len() as u32 - 1
    }

    /// Makes this call none: its result is its first argument.
    pub(crate) fn store(&mut self, call: u32) {
        self.calls[call as usize].flags |= plan::STORE;
    }

    /// Makes the child repeat this call as long as it fails with EAGAIN.
    pub(crate) fn try_again(&mut self, call: u32) {
        self.calls[call as usize].flags |= plan::TRY_AGAIN;
    }

    /// The arena, relocated to its own address. `None` if it is too large for 32-bit offsets.
    pub(crate) fn finish(mut self, parts: Parts<'_>) -> Option<Box<[u64]>> {
        let args: usize = parts.argv.iter().map(|arg| arg.len() + 1).sum();
        let (starts, env, elsewhere) = match parts.envp {
            Environment::Copied(block) => (&block.starts[..], &block.text[..], 0),
            Environment::Kept(vector) => (&[][..], &[][..], vector.as_ptr() as u64),
        };
        // The shell, the file, the arguments without the first, and a zero word.
        let by_shell = parts.argv.len().max(1) + 2;
        let both = parts.argv.len() + 1 + starts.len() + 1;
        let pointers = both + parts.shell.map_or(0, |_| by_shell * parts.candidates.len());
        let mut layout = Layout { at: size_of::<Header>() };
        let ops = layout.section(size_of_val(parts.ops));
        let argv = layout.section(pointers * 8);
        let pairs = layout.section(size_of_val(parts.pairs));
        let keep = layout.section(size_of_val(parts.keep));
        let candidates = layout.section(size_of_val(parts.candidates));
        let calls = layout.section(size_of_val(self.calls.as_slice()));
        let text = layout.section(self.text.len());
        let arg_text = layout.section(args);
        let env_text = layout.section(env.len());
        let len = layout.at;
        u32::try_from(len).ok()?;
        let mut words = vec![0u64; len / 8].into_boxed_slice();
        let header = Header {
            magic: MAGIC,
            version: VERSION,
            len: len as u64,
            base: 0,
            ops: ops as u32,
            op_count: parts.ops.len() as u32,
            argv: argv as u32,
            envp: (argv + (parts.argv.len() + 1) * 8) as u32,
            pointer_count: pointers as u32,
            pairs: pairs as u32,
            pair_count: parts.pairs.len() as u32,
            keep: keep as u32,
            keep_count: parts.keep.len() as u32,
            reserved: 0,
            environment: elsewhere,
        };
        let mut out = Writer { words: &mut words };
        out.put(0, &[header]);
        let shell = parts.shell.map(|_| (argv + both * 8, by_shell));
        for (n, op) in parts.ops.iter().enumerate() {
            out.put(ops + n * size_of::<Op>(), &[placed(*op, text, calls, candidates, shell)]);
        }
        for call in &mut self.calls {
            for (n, arg) in (0..).zip(&mut call.args) {
                if call.flags & plan::argument_is_offset(n) != 0 {
                    *arg += text as u64;
                }
            }
        }
        out.put(calls, &self.calls);
        out.put(pairs, parts.pairs);
        out.put(keep, parts.keep);
        for (n, candidate) in parts.candidates.iter().enumerate() {
            out.put(candidates + n * 4, &[candidate + text as u32]);
        }
        out.put(text, &self.text);
        let mut at = arg_text;
        for (n, arg) in parts.argv.iter().enumerate() {
            out.put(argv + n * 8, &[at as u64]);
            out.put(at, arg.as_bytes());
            at += arg.len() + 1;
        }
        if let Some(shell) = parts.shell {
            let texts = parts.candidates.iter().map(|candidate| [shell, *candidate].map(|at| text + at as usize));
            for_shell(&mut out, argv + both * 8, by_shell, texts, (parts.argv, arg_text));
        }
        out.put(env_text, env);
        for (n, start) in starts.iter().enumerate() {
            out.put(argv + (parts.argv.len() + 1 + n) * 8, &[(env_text + start) as u64]);
        }
        let base = words.as_mut_ptr();
        // SAFETY: the arena is complete, and the slice stays at its address when the box moves.
        unsafe { plan::relocate(base, base as u64) };
        Some(words)
    }
}

/// The op with offsets from the start of the arena. `shell`: the offset of the shell's argument vectors, and the
/// number of words in each.
fn placed(mut op: Op, text: usize, calls: usize, candidates: usize, shell: Option<(usize, usize)>) -> Op {
    match op.code {
        OpCode::Chdir | OpCode::Open | OpCode::Seccomp => op.a += text as u32,
        OpCode::Exec => {
            op.a = candidates as u32;
            if let Some((vectors, words)) = shell {
                op.set = (words as u64) << 32 | vectors as u64;
            }
        }
        OpCode::Call => {
            op.a = (calls + op.a as usize * size_of::<Call>()) as u32;
            op.c += text as u32;
        }
        _ => {}
    }
    op
}

/// Writes the argument vectors, of `words` words each, with which the shell runs each file: shell, file, arguments,
/// zero.
fn for_shell(
    out: &mut Writer<'_>,
    vectors: usize,
    words: usize,
    texts: impl Iterator<Item = [usize; 2]>,
    (argv, arg_text): (&[OsString], usize),
) {
    for (n, shell_and_file) in texts.enumerate() {
        let vector = vectors + n * words * 8;
        out.put(vector, &shell_and_file.map(|at| at as u64));
        let mut at = arg_text;
        for (place, arg) in argv.iter().enumerate() {
            if place > 0 {
                out.put(vector + (place + 1) * 8, &[at as u64]);
            }
            at += arg.len() + 1;
        }
    }
}

/// Allots sections, each at a multiple of 8.
struct Layout {
    at: usize,
}

impl Layout {
    fn section(&mut self, bytes: usize) -> usize {
        let start = self.at;
        self.at += bytes.next_multiple_of(8);
        start
    }
}

/// Writes objects into the arena, bounds-checked.
struct Writer<'a> {
    words: &'a mut [u64],
}

impl Writer<'_> {
    fn put<T: Plain>(&mut self, at: usize, objects: &[T]) {
        let bytes = size_of_val(objects);
        assert!(at + bytes <= size_of_val(self.words), "an arena section is too small");
        // SAFETY: the destination is inside the words (just checked); the objects are plain data.
        unsafe {
            let to = self.words.as_mut_ptr().cast::<u8>().add(at);
            std::ptr::copy_nonoverlapping(objects.as_ptr().cast::<u8>(), to, bytes);
        }
    }
}

/// Plain data: types whose bytes can be copied into an arena.
trait Plain {}

impl Plain for Header {}
impl Plain for Op {}
impl Plain for Call {}
impl Plain for Pair {}
impl Plain for i32 {}
impl Plain for u32 {}
impl Plain for u64 {}
impl Plain for u8 {}

//! What a seccomp filter returns for a system call: the kernel does not report which call a filter refused.

use forkless::BpfInstruction;

/// The calls that most programs cannot start without: they load the program's libraries and set up its thread.
const START: [(&str, i64); 7] = [
    ("mmap", libc::SYS_mmap),
    ("mprotect", libc::SYS_mprotect),
    ("openat", libc::SYS_openat),
    ("read", libc::SYS_read),
    ("close", libc::SYS_close),
    ("newfstatat", libc::SYS_newfstatat),
    #[cfg(target_arch = "x86_64")]
    ("arch_prctl", libc::SYS_arch_prctl),
    #[cfg(not(target_arch = "x86_64"))]
    ("set_tid_address", libc::SYS_set_tid_address),
];

/// The calls that execute the program.
const EXECUTE: [(&str, i64); 2] = [("execve", libc::SYS_execve), ("execveat", libc::SYS_execveat)];

/// What a filter decides about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FilterVerdict {
    Allow,
    Errno(i32),
    Kill,
    /// Undecided: it depends on a tracer or supervisor, or on the arguments of the call.
    Open,
}

/// The calls that most programs cannot start without and the filter refuses, whatever their arguments.
pub(crate) fn refused_at_start(program: &[BpfInstruction]) -> Vec<&'static str> {
    refused(program, &START)
}

/// The call that executes the program, if the filter refuses it.
pub(crate) fn refused_execution(program: &[BpfInstruction]) -> Option<&'static str> {
    refused(program, &EXECUTE).first().copied()
}

fn refused(program: &[BpfInstruction], calls: &[(&'static str, i64)]) -> Vec<&'static str> {
    let refuses =
        |number: i64| matches!(evaluate(program, number as u32), FilterVerdict::Errno(_) | FilterVerdict::Kill);
    calls.iter().filter(|(_, number)| refuses(*number)).map(|(name, _)| *name).collect()
}

/// AUDIT_ARCH_* of this machine.
const MACHINE: u32 = if cfg!(target_arch = "x86_64") { 0xc000_003e } else { 0xc000_00b7 };

/// Runs the filter as the kernel does for this call. An argument of the call is unknown, and so is what depends on it.
pub(crate) fn evaluate(program: &[BpfInstruction], number: u32) -> FilterVerdict {
    let (mut at, mut accumulator, mut index, mut memory) = (0_usize, Some(0_u32), Some(0_u32), [Some(0_u32); 16]);
    // The jumps of a filter go only forwards, so it ends.
    while let Some(&BpfInstruction { code, jt, jf, k }) = program.get(at) {
        at += 1;
        let operand = if code & 8 == 0 { Some(k) } else { index };
        let slot = k as usize % 16;
        match (code & 7, code & 0xf0) {
            (0, _) if code == 0x20 => {
                accumulator = match k {
                    0 => Some(number),
                    4 => Some(MACHINE),
                    _ => None,
                }
            }
            (0, _) => accumulator = load(code, k, &memory),
            (1, _) => index = load(code, k, &memory),
            (2, _) => memory[slot] = accumulator,
            (3, _) => memory[slot] = index,
            (4, operation) => accumulator = accumulator.zip(operand).and_then(|(a, x)| calculated(operation, a, x)),
            (5, 0) => at += k as usize,
            (5, condition) => {
                let Some(holds) = accumulator.zip(operand).and_then(|(a, x)| compare(condition, a, x)) else {
                    return FilterVerdict::Open;
                };
                at += usize::from(if holds { jt } else { jf });
            }
            (6, _) => {
                return if code & 0x18 == 0x10 {
                    accumulator.map_or(FilterVerdict::Open, returned)
                } else {
                    returned(k)
                };
            }
            (7, 0x80) => accumulator = index,
            (7, _) => index = accumulator,
            _ => return FilterVerdict::Open,
        }
    }
    FilterVerdict::Open
}

/// A constant, the length of the data or a word of the scratch memory.
fn load(code: u16, k: u32, memory: &[Option<u32>; 16]) -> Option<u32> {
    match code & 0xe0 {
        0 => Some(k),
        0x60 => memory[k as usize % 16],
        0x80 => Some(64),
        _ => None,
    }
}

fn calculated(operation: u16, a: u32, x: u32) -> Option<u32> {
    match operation {
        0x00 => Some(a.wrapping_add(x)),
        0x10 => Some(a.wrapping_sub(x)),
        0x20 => Some(a.wrapping_mul(x)),
        0x30 => a.checked_div(x),
        0x40 => Some(a | x),
        0x50 => Some(a & x),
        0x60 => a.checked_shl(x),
        0x70 => a.checked_shr(x),
        0x80 => Some(a.wrapping_neg()),
        0xa0 => Some(a ^ x),
        _ => None,
    }
}

fn compare(condition: u16, a: u32, x: u32) -> Option<bool> {
    match condition {
        0x10 => Some(a == x),
        0x20 => Some(a > x),
        0x30 => Some(a >= x),
        0x40 => Some(a & x != 0),
        _ => None,
    }
}

fn returned(value: u32) -> FilterVerdict {
    match value & 0xffff_0000 {
        0x7fff_0000 | 0x7ffc_0000 => FilterVerdict::Allow,
        0x0005_0000 => FilterVerdict::Errno((value & 0xffff) as i32),
        // KILL_PROCESS, KILL_THREAD and TRAP: all end in SIGSYS.
        0x8000_0000 | 0 | 0x0003_0000 => FilterVerdict::Kill,
        _ => FilterVerdict::Open,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(lines: &[(u16, u8, u8, u32)]) -> Vec<BpfInstruction> {
        lines.iter().map(|&(code, jt, jf, k)| BpfInstruction { code, jt, jf, k }).collect()
    }

    #[test]
    fn answer_is_that_of_the_first_matching_rule() {
        let read = libc::SYS_read as u32;
        let filter = program(&[
            (0x20, 0, 0, 4),
            (0x15, 1, 0, MACHINE),
            (6, 0, 0, 0),
            (0x20, 0, 0, 0),
            (0x15, 0, 1, read),
            (6, 0, 0, 0x5_0001),
            (6, 0, 0, 0x7fff_0000),
        ]);
        assert_eq!(evaluate(&filter, read), FilterVerdict::Errno(1));
        assert_eq!(evaluate(&filter, libc::SYS_mmap as u32), FilterVerdict::Allow);
        assert_eq!((refused_at_start(&filter), refused_execution(&filter)), (vec!["read"], None));
    }

    #[test]
    fn what_depends_on_an_argument_is_open() {
        let filter = program(&[(0x20, 0, 0, 16), (0x15, 0, 1, 7), (6, 0, 0, 0), (6, 0, 0, 0x7fff_0000)]);
        assert_eq!(evaluate(&filter, libc::SYS_read as u32), FilterVerdict::Open);
        assert_eq!(evaluate(&[], 0), FilterVerdict::Open);
    }

    #[test]
    fn calculations_and_memory_are_followed() {
        // Stores the number, adds 1 by the index register, loads the number again, and kills if it is that of execve.
        let execve = libc::SYS_execve as u32;
        let filter = program(&[
            (0x20, 0, 0, 0),
            (0x02, 0, 0, 3),
            (0x01, 0, 0, 1),
            (0x0c, 0, 0, 0),
            (0x15, 0, 2, execve + 1),
            (0x60, 0, 0, 3),
            (0x15, 1, 0, execve),
            (6, 0, 0, 0x7fff_0000),
            (6, 0, 0, 0x8000_0000),
        ]);
        assert_eq!(evaluate(&filter, execve), FilterVerdict::Kill);
        assert_eq!(evaluate(&filter, libc::SYS_read as u32), FilterVerdict::Allow);
        assert_eq!(refused_execution(&filter), Some("execve"));
    }
}

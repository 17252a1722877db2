//! The system calls of a sandboxed program: a list of those that it may use, as a BPF program for seccomp(2).
//!
//! Known calls that are not listed fail with EPERM. Calls that are newer than this list fail with ENOSYS, so that programs
//! fall back to older ones.

use super::calls;
use crate::BpfInstruction;
use nix::libc;
use std::collections::BTreeMap;

const LOAD: u16 = 0x20;
const JUMP: u16 = 0x05;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_AT_LEAST: u16 = 0x35;
const JUMP_IF_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

/// The bits of a code that hold the instruction's class.
const CLASS: u16 = 7;

/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const MACHINE: u32 = 4;

/// The lower half of an argument. The kernel uses only this half of all arguments that are compared here: comparing all 64
/// bits would let a program pass the upper half unseen.
const fn argument(number: u32) -> u32 {
    16 + 8 * number
}

pub(crate) const ALLOW: u32 = 0x7fff_0000;

const fn error(errno: i32) -> u32 {
    0x5_0000 | errno as u32
}

const REFUSED: u32 = error(libc::EPERM);
const UNKNOWN: u32 = error(libc::ENOSYS);

/// AUDIT_ARCH_X86_64 or AUDIT_ARCH_AARCH64. A call of another architecture, such as `int 0x80` on x86-64, has other numbers.
#[cfg(target_arch = "x86_64")]
const OURS: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const OURS: u32 = 0xc000_00b7;

/// CLONE_NEWTIME, NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET.
const NAMESPACES: u32 =
    0x80 | 0x2_0000 | 0x200_0000 | 0x400_0000 | 0x800_0000 | 0x1000_0000 | 0x2000_0000 | 0x4000_0000;

/// The same for clone(2), in whose flags 0x80 belongs to the exit signal.
const CLONED: u32 = NAMESPACES & !0x80;

const fn op(code: u16, jt: u8, jf: u8, k: u32) -> BpfInstruction {
    BpfInstruction { code, jt, jf, k }
}

/// What the program shares with others.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Surroundings {
    /// It has namespaces of its own.
    Own,
    /// It has those of the caller.
    Shared(Shared),
}

/// What a program may do that has the namespaces of the caller, beyond what Landlock refuses.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Shared {
    /// Make sockets for the network. Never Unix sockets: Landlock refuses no connection to a daemon's socket by its path.
    pub(super) network: bool,
    /// Change modes, owners, times and extended attributes of files, which Landlock does not refuse.
    pub(super) attributes: bool,
    /// Send signals: Landlock refuses those to processes outside.
    pub(super) signals: bool,
}

/// The filter of a program in namespaces of its own.
pub fn program() -> Vec<BpfInstruction> {
    program_in(Surroundings::Own)
}

/// What is done with the calls from a number on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CallDecision {
    Return(u32),
    /// It depends on an argument: goes on at this block of instructions.
    Block(usize),
}

/// The filter of the sandboxed program.
///
/// A search by the number comes first, and leads to the blocks for calls with conditions. The kernel tries each number when it
/// takes a filter (`seccomp_cache_prepare_bitmap()` in kernel/seccomp.c), so a launch pays for the instructions before a decision.
pub(super) fn program_in(surroundings: Surroundings) -> Vec<BpfInstruction> {
    let mut blocks: Vec<Vec<BpfInstruction>> = Vec::new();
    let ipc: &[_] = if surroundings == Surroundings::Own { calls::IPC } else { &[] };
    let listed = calls::ALLOWED.iter().chain(calls::OLDER).chain(ipc);
    let mut verdicts: BTreeMap<u32, CallDecision> =
        listed.map(|number| (*number as u32, CallDecision::Return(ALLOW))).collect();
    // The first conditions for a number decide. Equal ones share a block.
    for (number, conditions) in conditional(surroundings).into_iter().rev() {
        let verdict = match conditions[..] {
            [BpfInstruction { code: RETURN, k, .. }] => CallDecision::Return(k),
            _ => CallDecision::Block(blocks.iter().position(|block| *block == conditions).unwrap_or(blocks.len())),
        };
        if verdict == CallDecision::Block(blocks.len()) {
            blocks.push(conditions);
        }
        verdicts.insert(number, verdict);
    }
    let mut segments: Vec<(u32, CallDecision)> = Vec::new();
    for number in 0..=calls::NEWEST {
        let verdict = verdicts.get(&number).copied().unwrap_or(CallDecision::Return(REFUSED));
        if segments.last().is_none_or(|(_, before)| *before != verdict) {
            segments.push((number, verdict));
        }
    }
    segments.push((calls::NEWEST + 1, CallDecision::Return(UNKNOWN)));
    let mut rules = head();
    let (start, found) = (rules.len(), search(&segments));
    let mut next = start + found.len();
    let starts: Vec<usize> = blocks.iter().map(|block| (next, next += block.len()).0).collect();
    rules.extend(found.iter().enumerate().map(|(at, step)| match step {
        SearchStep::Instruction(rule) => *rule,
        SearchStep::Block(block) => op(JUMP, 0, 0, (starts[*block] - (start + at) - 1) as u32),
    }));
    rules.extend(blocks.concat());
    rules
}

/// The same as bytes: an array of `struct sock_filter`, which other sandboxes read (`bwrap --seccomp`).
pub fn bytes() -> Vec<u8> {
    let bytes = |rule: BpfInstruction| {
        let ([a, b], [c, d, e, f]) = (rule.code.to_ne_bytes(), rule.k.to_ne_bytes());
        [a, b, rule.jt, rule.jf, c, d, e, f]
    };
    program().into_iter().flat_map(bytes).collect()
}

/// Loads the number, after other architectures and the x32 ABI have been refused.
fn head() -> Vec<BpfInstruction> {
    const X32_SYSCALL_BIT: u32 = 0x4000_0000;
    let mut rules =
        vec![op(LOAD, 0, 0, MACHINE), op(JUMP_IF_EQUAL, 1, 0, OURS), op(RETURN, 0, 0, REFUSED), op(LOAD, 0, 0, NUMBER)];
    if cfg!(target_arch = "x86_64") {
        rules.extend([op(JUMP_IF_AT_LEAST, 0, 1, X32_SYSCALL_BIT), op(RETURN, 0, 0, REFUSED)]);
    }
    rules
}

/// Calls that depend on an argument. The instructions end with a return.
fn conditional(surroundings: Surroundings) -> Vec<(u32, Vec<BpfInstruction>)> {
    let without = |bits, number| {
        vec![
            op(LOAD, 0, 0, argument(number)),
            op(JUMP_IF_ANY_BIT, 0, 1, bits),
            op(RETURN, 0, 0, REFUSED),
            op(RETURN, 0, 0, ALLOW),
        ]
    };
    // Refuses the listed values, or all others.
    let compared = |number, values: &[u32], listed, others| {
        let mut rules = vec![op(LOAD, 0, 0, argument(number))];
        for value in values {
            rules.extend([op(JUMP_IF_EQUAL, 0, 1, *value), op(RETURN, 0, 0, listed)]);
        }
        rules.push(op(RETURN, 0, 0, others));
        rules
    };
    // TIOCSTI types into the terminal; TIOCLINUX pastes into a console; TIOCSETD loads a driver. FIOSETOWN and SIOCSPGRP name
    // the receiver of a signal.
    const REQUESTS: [u32; 5] = [0x5412, 0x541c, 0x5423, 0x8901, 0x8902];
    let is_silent = matches!(surroundings, Surroundings::Shared(Shared { signals: false, .. }));
    let requests = if is_silent { &REQUESTS[..] } else { &REQUESTS[..3] };
    // Other families are not in the network namespace (AF_VSOCK), or are rarely used and have had many faults (AF_ALG).
    const FAMILIES: [u32; 4] =
        [libc::AF_UNIX as u32, libc::AF_INET as u32, libc::AF_INET6 as u32, libc::AF_NETLINK as u32];
    // Query, PER_LINUX, PER_LINUX32, and both with UNAME26. Others weaken the layout of memory.
    const PERSONALITIES: [u32; 5] = [0xffff_ffff, 0, 8, 0x2_0000, 0x2_0008];
    let family = error(libc::EAFNOSUPPORT);
    // Other protocols than NETLINK_ROUTE show what the kernel does for others, such as all forks and execs (NETLINK_CONNECTOR).
    let mut families = FAMILIES.to_vec();
    if surroundings != Surroundings::Own {
        families.retain(|family| *family != libc::AF_UNIX as u32);
    }
    let mut socket = vec![
        op(LOAD, 0, 0, argument(0)),
        op(JUMP_IF_EQUAL, 0, 4, libc::AF_NETLINK as u32),
        op(LOAD, 0, 0, argument(2)),
        op(JUMP_IF_EQUAL, 0, 1, libc::NETLINK_ROUTE as u32),
        op(RETURN, 0, 0, ALLOW),
        op(RETURN, 0, 0, error(libc::EPROTONOSUPPORT)),
    ];
    socket.extend(compared(0, &families, ALLOW, family));
    if matches!(surroundings, Surroundings::Shared(Shared { network: false, .. })) {
        socket = vec![op(RETURN, 0, 0, family)];
    }
    // Without an IPC namespace of its own the program could attach the segments of other processes.
    let shared = if surroundings == Surroundings::Own { without(0o4000, 2) } else { vec![op(RETURN, 0, 0, REFUSED)] };
    // A setuid or setgid file could be left behind through a descriptor or a bind mount.
    let mode = libc::S_ISUID | libc::S_ISGID;
    let made = |flags| {
        let created = (libc::O_CREAT | libc::O_TMPFILE & !libc::O_DIRECTORY) as u32;
        let mut rules =
            vec![op(LOAD, 0, 0, argument(flags)), op(JUMP_IF_ANY_BIT, 1, 0, created), op(RETURN, 0, 0, ALLOW)];
        rules.extend(without(mode, flags + 1));
        rules
    };
    // The pool of huge pages belongs to the machine.
    let huge = [libc::MAP_HUGETLB as u32, 4];
    #[cfg(target_arch = "x86_64")]
    let older = [
        (libc::SYS_open as u32, made(1)),
        (libc::SYS_creat as u32, without(mode, 1)),
        (libc::SYS_chmod as u32, without(mode, 1)),
        (libc::SYS_mkdir as u32, without(mode, 1)),
        (libc::SYS_mknod as u32, without(mode, 1)),
    ];
    #[cfg(not(target_arch = "x86_64"))]
    let older = [];
    const FCHMODAT2: u32 = 452;
    let mut calls = vec![
        (libc::SYS_openat as u32, made(2)),
        (libc::SYS_fchmod as u32, without(mode, 1)),
        (libc::SYS_fchmodat as u32, without(mode, 2)),
        (FCHMODAT2, without(mode, 2)),
        (libc::SYS_mkdirat as u32, without(mode, 2)),
        (libc::SYS_mknodat as u32, without(mode, 2)),
        // Its flags and mode are in memory, where a filter cannot look. Programs fall back to openat(2).
        (libc::SYS_openat2 as u32, vec![op(RETURN, 0, 0, UNKNOWN)]),
        (libc::SYS_mmap as u32, without(huge[0], 3)),
        (libc::SYS_memfd_create as u32, without(huge[1], 1)),
        (libc::SYS_shmget as u32, shared),
        (libc::SYS_clone as u32, without(CLONED, 0)),
        (libc::SYS_unshare as u32, without(NAMESPACES, 0)),
        // Its flags are in memory, where a filter cannot look. libcs fall back to clone(2).
        (libc::SYS_clone3 as u32, vec![op(RETURN, 0, 0, UNKNOWN)]),
        (libc::SYS_ioctl as u32, compared(1, requests, REFUSED, ALLOW)),
        (libc::SYS_socket as u32, socket),
        (libc::SYS_socketpair as u32, compared(0, &FAMILIES, ALLOW, family)),
        (libc::SYS_personality as u32, compared(0, &PERSONALITIES, ALLOW, REFUSED)),
    ];
    calls.extend(older);
    if let Surroundings::Shared(shared) = surroundings {
        // The first rule for a number decides.
        calls.splice(0..0, on_others(shared));
    }
    calls
}

/// Calls by which a program could change processes and files outside of the sandbox, where no namespace hides them.
fn on_others(shared: Shared) -> Vec<(u32, Vec<BpfInstruction>)> {
    let refused = |number: libc::c_long| (number as u32, vec![op(RETURN, 0, 0, REFUSED)]);
    // Number 0 is the calling process. Another number, PRIO_PGRP or PRIO_USER may name processes outside.
    let only = |number: libc::c_long, wanted: &[(u32, u32)]| {
        let mut rules = Vec::new();
        for (offset, value) in wanted {
            rules.extend([op(LOAD, 0, 0, *offset), op(JUMP_IF_EQUAL, 1, 0, *value), op(RETURN, 0, 0, REFUSED)]);
        }
        rules.push(op(RETURN, 0, 0, ALLOW));
        (number as u32, rules)
    };
    const PRIO_PROCESS: u32 = 0;
    const IOPRIO_WHO_PROCESS: u32 = 1;
    let own = [(argument(0), 0)];
    let mut calls = vec![
        only(libc::SYS_prlimit64, &own),
        only(libc::SYS_sched_setaffinity, &own),
        only(libc::SYS_sched_setparam, &own),
        only(libc::SYS_sched_setscheduler, &own),
        only(libc::SYS_sched_setattr, &own),
        only(libc::SYS_setpriority, &[(argument(0), PRIO_PROCESS), (argument(1), 0)]),
        only(libc::SYS_ioprio_set, &[(argument(0), IOPRIO_WHO_PROCESS), (argument(1), 0)]),
        // inotify instances are counted for the user, and the names of files outside could be watched.
        refused(libc::SYS_inotify_init1),
    ];
    #[cfg(target_arch = "x86_64")]
    calls.push(refused(libc::SYS_inotify_init));
    if !shared.attributes {
        calls.extend(calls::ATTRIBUTES.iter().map(|number| refused(*number)));
        // Without a path: the times of an open file, as touch(1) sets them. Both halves of the address count.
        calls.push(only(libc::SYS_utimensat, &[(argument(1), 0), (argument(1) + 4, 0)]));
    }
    if !shared.signals {
        calls.extend(calls::SIGNALS.iter().map(|number| refused(*number)));
        // F_SETOWN, F_SETSIG and F_SETOWN_EX name the receiver of a signal.
        let mut owner = vec![op(LOAD, 0, 0, argument(1))];
        for command in [8, 10, 15] {
            owner.extend([op(JUMP_IF_EQUAL, 0, 1, command), op(RETURN, 0, 0, REFUSED)]);
        }
        owner.push(op(RETURN, 0, 0, ALLOW));
        calls.push((libc::SYS_fcntl as u32, owner));
    }
    calls
}

enum SearchStep {
    Instruction(BpfInstruction),
    /// A jump to this block, whose position is not known yet.
    Block(usize),
}

/// A binary search for the last segment that begins at or below the number.
fn search(segments: &[(u32, CallDecision)]) -> Vec<SearchStep> {
    match segments {
        [(_, CallDecision::Return(result))] => return vec![SearchStep::Instruction(op(RETURN, 0, 0, *result))],
        [(_, CallDecision::Block(block))] => return vec![SearchStep::Block(*block)],
        _ => {}
    }
    let (lower, upper) = segments.split_at(segments.len() / 2);
    let (below, above) = (search(lower), search(upper));
    // A conditional jump reaches 255 instructions; an unconditional one reaches all.
    let jumps = match u8::try_from(below.len()) {
        Ok(length) => vec![op(JUMP_IF_AT_LEAST, length, 0, upper[0].0)],
        Err(_) => vec![op(JUMP_IF_AT_LEAST, 0, 1, upper[0].0), op(JUMP, 0, 0, below.len() as u32)],
    };
    jumps.into_iter().map(SearchStep::Instruction).chain(below).chain(above).collect()
}

/// Both filters in one, with the result that the kernel gives for two filters: that of the stricter action. So each result of
/// the first that lets a call through (to be made, logged, traced or handed to a supervisor) jumps to a copy of the second, in
/// which it stands for "allow". None if the first returns the accumulator, which cannot be followed, or runs past its end.
pub fn both(first: &[BpfInstruction], second: &[BpfInstruction]) -> Option<Vec<BpfInstruction>> {
    let is_closed = first.last().is_some_and(|rule| rule.code & CLASS == RETURN);
    if !is_closed || first.iter().enumerate().any(|(at, rule)| at + farthest(*rule) >= first.len()) {
        return None;
    }
    let mut rules = first.to_vec();
    let mut copies: Vec<u32> = Vec::new();
    for (at, rule) in rules.iter_mut().enumerate() {
        match *rule {
            BpfInstruction { code: RETURN, k, .. } if is_let_through(k) => {
                let number = copies.iter().position(|known| *known == k).unwrap_or_else(|| {
                    copies.push(k);
                    copies.len() - 1
                });
                *rule = op(JUMP, 0, 0, (first.len() - at - 1 + number * second.len()) as u32);
            }
            BpfInstruction { code: RETURN, .. } => {}
            BpfInstruction { code, .. } if code & CLASS == RETURN => return None,
            _ => {}
        }
    }
    for result in copies {
        rules.extend(second.iter().map(|rule| match *rule {
            BpfInstruction { code: RETURN, k: ALLOW, .. } => op(RETURN, 0, 0, result),
            other => other,
        }));
    }
    Some(rules)
}

/// Is the action of this result weaker than an error? seccomp(2) lists the actions by precedence.
fn is_let_through(result: u32) -> bool {
    const ACTION: u32 = 0xffff_0000;
    (result & ACTION) as i32 > error(0) as i32
}

/// The longest distance from an instruction to its successors.
fn farthest(rule: BpfInstruction) -> usize {
    match rule.code {
        JUMP => 1 + rule.k as usize,
        code if code & CLASS == JUMP => 1 + usize::from(rule.jt.max(rule.jf)),
        code if code & CLASS == RETURN => 0,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result of a filter for a call.
    fn evaluate(rules: &[BpfInstruction], machine: u32, number: u32, arguments: &[u64]) -> u32 {
        counted(rules, machine, number, arguments).0
    }

    /// The same, and how many instructions that took.
    fn counted(rules: &[BpfInstruction], machine: u32, number: u32, arguments: &[u64]) -> (u32, usize) {
        let (mut at, mut value) = (0, 0);
        for count in 1.. {
            let BpfInstruction { code, jt, jf, k } = rules[at];
            let jump = |yes: bool| 1 + usize::from(if yes { jt } else { jf });
            at += match code {
                LOAD => {
                    value = match k {
                        NUMBER => number,
                        MACHINE => machine,
                        _ => (arguments.get((k as usize - 16) / 8).copied().unwrap_or(0) >> (k % 8 * 8)) as u32,
                    };
                    1
                }
                JUMP => 1 + k as usize,
                JUMP_IF_EQUAL => jump(value == k),
                JUMP_IF_AT_LEAST => jump(value >= k),
                JUMP_IF_ANY_BIT => jump(value & k != 0),
                RETURN => return (k, count),
                other => panic!("instruction {other:#x}"),
            };
        }
        unreachable!()
    }

    /// The kernel tries each number at each launch.
    #[test]
    fn a_number_is_decided_within_a_few_instructions() {
        for shared in [None, Some(Shared::default())] {
            let rules = program_in(shared.map_or(Surroundings::Own, Surroundings::Shared));
            let counts: Vec<usize> = (0..500).map(|number| counted(&rules, OURS, number, &[]).1).collect();
            let sum: usize = counts.iter().sum();
            assert!(sum / counts.len() <= 14, "{} for each", sum / counts.len());
        }
    }

    #[test]
    fn filter_allows_exactly_the_listed_calls() {
        let rules = program();
        assert!(rules.len() < 4096);
        let special: Vec<u32> = conditional(Surroundings::Own).iter().map(|(number, _)| *number).collect();
        for number in (0..1024).filter(|number| !special.contains(number)) {
            let allowed =
                calls::ALLOWED.iter().chain(calls::OLDER).chain(calls::IPC).any(|listed| *listed as u32 == number);
            let wanted = match allowed {
                true => ALLOW,
                false if number <= calls::NEWEST => REFUSED,
                false => UNKNOWN,
            };
            assert_eq!(evaluate(&rules, OURS, number, &[]), wanted, "{number}");
            assert_eq!(evaluate(&rules, 0x4000_0003, number, &[]), REFUSED, "i386 {number}");
            if cfg!(target_arch = "x86_64") {
                assert_eq!(evaluate(&rules, OURS, 0x4000_0000 | number, &[]), REFUSED, "x32 {number}");
            }
        }
    }

    #[test]
    fn filter_compares_the_half_of_an_argument_that_the_kernel_uses() {
        let rules = program();
        let of = |number: libc::c_long, arguments: &[u64]| evaluate(&rules, OURS, number as u32, arguments);
        for high in [0, 1 << 32, 0xffff_ffff << 32] {
            for request in [0x5412, 0x541c, 0x5423] {
                assert_eq!(of(libc::SYS_ioctl, &[0, high | request]), REFUSED);
            }
            for flag in [0x2_0000, 0x200_0000, 0x400_0000, 0x800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000] {
                assert_eq!(of(libc::SYS_clone, &[high | flag | 17, 0]), REFUSED);
                assert_eq!(of(libc::SYS_unshare, &[high | flag, 0]), REFUSED);
            }
            assert_eq!(of(libc::SYS_socket, &[high | 40, 0]), error(libc::EAFNOSUPPORT));
        }
        assert_eq!(of(libc::SYS_ioctl, &[0, 0x5413]), ALLOW);
        assert_eq!(of(libc::SYS_clone, &[0x11, 0]), ALLOW);
        assert_eq!(of(libc::SYS_clone, &[0x3d_0f00, 0]), ALLOW, "a thread");
        assert_eq!(of(libc::SYS_clone3, &[0, 0]), UNKNOWN);
        assert_eq!(of(libc::SYS_personality, &[0x4_0000, 0]), REFUSED);
    }

    /// Each call that sets a mode, with the numbers of its flags and of its mode.
    #[test]
    fn no_call_sets_the_setuid_or_setgid_bit() {
        let rules = program();
        let of = |number: u32, arguments: &[u64]| evaluate(&rules, OURS, number, arguments);
        let mut calls: Vec<(libc::c_long, Option<usize>, usize)> = vec![
            (libc::SYS_fchmod, None, 1),
            (libc::SYS_fchmodat, None, 2),
            (452, None, 2),
            (libc::SYS_mkdirat, None, 2),
            (libc::SYS_mknodat, None, 2),
            (libc::SYS_openat, Some(2), 3),
        ];
        #[cfg(target_arch = "x86_64")]
        calls.extend([
            (libc::SYS_chmod, None, 1),
            (libc::SYS_creat, None, 1),
            (libc::SYS_mkdir, None, 1),
            (libc::SYS_mknod, None, 1),
            (libc::SYS_open, Some(1), 2),
        ]);
        for (number, flags, mode) in calls {
            for (bits, wanted) in [(0o4755, REFUSED), (0o2755, REFUSED), (0o1777, ALLOW), (0o755, ALLOW)] {
                for high in [0, 0xffff_ffff << 32] {
                    for created in [libc::O_CREAT, libc::O_TMPFILE, libc::O_CREAT | libc::O_RDWR] {
                        let mut arguments = [0; 6];
                        arguments[mode] = high | bits;
                        if let Some(flags) = flags {
                            arguments[flags] = high | created as u64;
                        }
                        assert_eq!(of(number as u32, &arguments), wanted, "{number} {bits:o} {created:#x}");
                    }
                }
            }
            if let Some(flags) = flags {
                // Without them the mode is not used, and may be anything.
                let mut arguments = [0; 6];
                (arguments[flags], arguments[mode]) = (libc::O_DIRECTORY as u64, 0o7777);
                assert_eq!(of(number as u32, &arguments), ALLOW, "{number}");
            }
        }
        assert_eq!(of(libc::SYS_openat2 as u32, &[]), UNKNOWN);
    }

    #[test]
    fn sockets_and_memory_of_the_machine_are_refused() {
        let rules = program();
        let of = |number: libc::c_long, arguments: &[u64]| evaluate(&rules, OURS, number as u32, arguments);
        assert_eq!(of(libc::SYS_socket, &[libc::AF_NETLINK as u64, 3, 0]), ALLOW);
        assert_eq!(of(libc::SYS_socket, &[libc::AF_UNIX as u64, 1, 7]), ALLOW);
        for protocol in 1..32 {
            let answer = of(libc::SYS_socket, &[libc::AF_NETLINK as u64, 3, 7 << 32 | protocol]);
            assert_eq!(answer, error(libc::EPROTONOSUPPORT), "{protocol}");
        }
        assert_eq!(of(libc::SYS_mmap, &[0, 1 << 20, 3, 0x22]), ALLOW);
        assert_eq!(of(libc::SYS_mmap, &[0, 1 << 20, 3, 0x22 | 0x4_0000]), REFUSED);
        assert_eq!((of(libc::SYS_memfd_create, &[0, 1]), of(libc::SYS_memfd_create, &[0, 5])), (ALLOW, REFUSED));
        assert_eq!((of(libc::SYS_shmget, &[0, 1, 0o1600]), of(libc::SYS_shmget, &[0, 1, 0o5600])), (ALLOW, REFUSED));
    }

    /// Without namespaces: each call that reaches others, with arguments for which it is refused and allowed.
    #[test]
    fn without_namespaces_a_program_changes_only_itself() {
        let (none, family) = (Shared::default(), error(libc::EAFNOSUPPORT));
        let result = |shared, number: libc::c_long, arguments: &[u64]| {
            evaluate(&program_in(Surroundings::Shared(shared)), OURS, number as u32, arguments)
        };
        let network = Shared { network: true, ..none };
        let (unix, internet) = (libc::AF_UNIX as u64, libc::AF_INET as u64);
        assert_eq!(result(none, libc::SYS_socket, &[internet, 1, 0]), family);
        assert_eq!(result(network, libc::SYS_socket, &[internet, 1, 0]), ALLOW);
        for shared in [none, network] {
            assert_eq!(result(shared, libc::SYS_socket, &[unix, 1, 0]), family);
            assert_eq!(result(shared, libc::SYS_socketpair, &[unix, 1, 0]), ALLOW);
            for number in calls::IPC.iter().chain(&[libc::SYS_shmget, libc::SYS_inotify_init1]) {
                assert_eq!(result(shared, *number, &[]), REFUSED, "{number}");
            }
        }
        let of_process = [
            (libc::SYS_prlimit64, vec![0]),
            (libc::SYS_sched_setaffinity, vec![0]),
            (libc::SYS_sched_setparam, vec![0]),
            (libc::SYS_sched_setscheduler, vec![0]),
            (libc::SYS_sched_setattr, vec![0]),
            (libc::SYS_setpriority, vec![0, 0]),
            (libc::SYS_ioprio_set, vec![1, 0]),
        ];
        for (number, own) in of_process {
            assert_eq!(result(none, number, &own), ALLOW, "{number}");
            for position in 0..own.len() {
                let mut others = own.clone();
                others[position] = 7;
                assert_eq!(result(none, number, &others), REFUSED, "{number} {others:?}");
            }
        }
        let attributes = Shared { attributes: true, ..none };
        for number in calls::ATTRIBUTES {
            assert_eq!(result(none, *number, &[]), REFUSED, "{number}");
            assert_eq!(result(attributes, *number, &[]), ALLOW, "{number}");
        }
        for (path, wanted) in [(0, ALLOW), (1, REFUSED), (1 << 32, REFUSED)] {
            assert_eq!(result(none, libc::SYS_utimensat, &[3, path]), wanted);
            assert_eq!(result(attributes, libc::SYS_utimensat, &[3, path]), ALLOW);
        }
        let signals = Shared { signals: true, ..none };
        let through_files = [(libc::SYS_fcntl, [8, 10, 15].to_vec()), (libc::SYS_ioctl, [0x8901, 0x8902].to_vec())];
        for (shared, wanted) in [(none, REFUSED), (signals, ALLOW)] {
            for number in calls::SIGNALS {
                assert_eq!(result(shared, *number, &[]), wanted, "{number}");
            }
            for (number, commands) in &through_files {
                for command in commands {
                    assert_eq!(result(shared, *number, &[3, *command]), wanted, "{number} {command}");
                }
            }
            assert_eq!(result(shared, libc::SYS_fcntl, &[3, 2]), ALLOW);
            assert_eq!(result(shared, libc::SYS_ioctl, &[0, 0x5412]), REFUSED);
        }
    }

    #[test]
    fn both_filters_must_allow_a_call() {
        let first = [
            op(LOAD, 0, 0, NUMBER),
            op(JUMP_IF_EQUAL, 0, 1, libc::SYS_getpid as u32),
            op(RETURN, 0, 0, error(5)),
            op(RETURN, 0, 0, ALLOW),
        ];
        let rules = both(&first, &program()).expect("a filter");
        assert_eq!(evaluate(&rules, OURS, libc::SYS_getpid as u32, &[]), error(5));
        assert_eq!(evaluate(&rules, OURS, libc::SYS_read as u32, &[]), ALLOW);
        assert_eq!(evaluate(&rules, OURS, libc::SYS_mount as u32, &[]), REFUSED);
        assert!(both(&[op(0x16, 0, 0, 0)], &program()).is_none());
    }

    #[test]
    fn second_filter_decides_whatever_result_of_the_first_lets_a_call_through() {
        // Log, trace, hand to a supervisor, and "allow" with data, which the kernel ignores.
        for result in [0x7ffc_0000, 0x7ff0_0007, 0x7fc0_0000, ALLOW | 1, ALLOW] {
            let first = [
                op(LOAD, 0, 0, NUMBER),
                op(JUMP_IF_EQUAL, 0, 1, libc::SYS_getpid as u32),
                op(RETURN, 0, 0, ALLOW),
                op(RETURN, 0, 0, result),
            ];
            let rules = both(&first, &program()).expect("a filter");
            let of = |number: libc::c_long| evaluate(&rules, OURS, number as u32, &[]);
            assert_eq!((of(libc::SYS_getpid), of(libc::SYS_read)), (ALLOW, result), "{result:#x}");
            assert_eq!(of(libc::SYS_mount), REFUSED, "{result:#x}");
        }
        // Kill the process, kill the thread, trap, fail.
        for result in [0x8000_0000, 0, 0x3_0000, error(5)] {
            let rules = both(&[op(RETURN, 0, 0, result)], &program()).expect("a filter");
            assert_eq!(evaluate(&rules, OURS, libc::SYS_mount as u32, &[]), result);
        }
    }

    #[test]
    fn filter_that_would_run_into_the_second_one_is_refused() {
        let end = op(RETURN, 0, 0, ALLOW);
        for wrong in [op(JUMP, 0, 0, 1), op(JUMP_IF_EQUAL, 1, 0, 0), op(JUMP_IF_AT_LEAST, 0, 9, 0)] {
            assert!(both(&[wrong, end], &program()).is_none(), "{wrong:?}");
        }
        assert!(both(&[op(LOAD, 0, 0, NUMBER)], &program()).is_none() && both(&[], &program()).is_none());
        assert!(both(&[op(JUMP_IF_EQUAL, 0, 1, 0), end, end], &program()).is_some());
    }
}

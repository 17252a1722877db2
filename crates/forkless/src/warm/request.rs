//! What a launch needs of a template: which program, with which environment. And the conditions that depend on the plan
//! alone.

use super::Reason;
use crate::plan::{Creator, Plan};
use crate::route::Launcher;
use crate::wait::sigchld_discards;
use forkless_core::plan::{self, Call, OpCode};
use forkless_core::planted;
use forkless_core::sys::uapi;
use std::ffi::{CStr, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The variables that templates do not depend on: programs that start others change them all the time.
const CHANGING: [&[u8]; 4] = [b"PWD", b"OLDPWD", b"SHLVL", b"_"];

/// The longest arguments and environment, in bytes. The kernel takes 128 KiB at least.
const LONGEST: usize = 100 * 1024;

/// A template's program and environment.
pub(super) struct Request {
    /// Everything that a template depends on.
    pub(super) key: Vec<u8>,
    pub(super) program: PathBuf,
    pub(super) arg0: OsString,
    pub(super) env: Vec<(OsString, OsString)>,
}

impl Request {
    /// The error is the reason why no template could be used.
    pub(super) fn of(plan: &Plan) -> Result<Self, Reason> {
        suits(plan)?;
        let exec = plan.op(plan.last_op());
        let Some(path) = plan.candidates(exec).first().map(|&offset| text(plan, offset)) else {
            return Err("the program is a descriptor".into());
        };
        if !path.starts_with(b"/") {
            return Err("the program's path is relative".into());
        }
        // SAFETY: the vectors of a prepared plan lie in its arena, relocated, and end in zero words.
        let (args, env) = unsafe {
            let header = plan.header();
            (strings(plan::at(header, (*header).argv)), strings(plan::environment(header)))
        };
        let Some(arg0) = args.first() else { return Err("the program has no name".into()) };
        let length: usize = args.iter().chain(&env).map(|text| text.len() + 9).sum();
        if length > LONGEST {
            return Err("arguments and environment are longer than 100 KiB".into());
        }
        let mut key = Vec::with_capacity(length);
        let mut variables = Vec::with_capacity(env.len());
        for part in [path, arg0] {
            key.extend_from_slice(part);
            key.push(0);
        }
        for &text in &env {
            let Some(at) = text.iter().position(|&byte| byte == b'=').filter(|&at| at > 0) else {
                return Err("the environment has an entry that is no variable".into());
            };
            let (name, value) = (&text[..at], &text[at + 1..]);
            let is_loaders = [&b"LD_"[..], b"GLIBC_TUNABLES", b"MALLOC_", b"GCONV_PATH"];
            if is_loaders.iter().any(|start| name.starts_with(start)) {
                return Err("the environment has a variable for the dynamic loader or libc".into());
            }
            if CHANGING.contains(&name) {
                continue;
            }
            if !planted!("warm-environment-not-compared") {
                key.extend_from_slice(text);
                key.push(0);
            }
            variables.push((OsStr::from_bytes(name).to_owned(), OsStr::from_bytes(value).to_owned()));
        }
        let mut names: Vec<_> = variables.iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        if names.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err("the environment has a variable twice".into());
        }
        Ok(Self {
            key,
            program: OsStr::from_bytes(path).into(),
            arg0: OsStr::from_bytes(arg0).to_owned(),
            env: variables,
        })
    }
}

fn text(plan: &Plan, offset: u32) -> &[u8] {
    // SAFETY: the offset is that of a string of this plan, which ends in NUL.
    unsafe { CStr::from_ptr(plan::at(plan.header(), offset)) }.to_bytes()
}

/// The strings of a vector.
///
/// # Safety
/// It holds addresses of strings that live as long as the result, and ends in a zero word.
unsafe fn strings<'a>(mut vector: *const u64) -> Vec<&'a [u8]> {
    let mut found = Vec::with_capacity(64);
    // SAFETY: the caller's contract.
    unsafe {
        while *vector != 0 {
            found.push(CStr::from_ptr(*vector as *const _).to_bytes());
            vector = vector.add(1);
        }
    }
    found
}

/// Whether all settings of a plan have the same effect without an exec.
fn suits(plan: &Plan) -> Result<(), Reason> {
    let conditions = [
        (plan.launcher == Launcher::Clone, "another launcher was selected"),
        (plan.flags == 0, "autoreap or pidfd_autokill"),
        (!plan.inherit_all, "inherit_all"),
        (matches!(plan.creator, Creator::Caller) && !plan.names_parent, "a parent-death signal"),
        (plan.namespaces == 0 && plan.id_maps.is_none() && !plan.is_foreign, "new or joined namespaces"),
        (plan.cgroup.is_none() && !plan.changes_cgroup, "another cgroup"),
        (!plan.is_filtered && !plan.changes_ids && !plan.vfork, "other ids, capabilities or filters"),
        (plan.pty.is_none(), "a pseudo-terminal"),
        (plan.back.is_none(), "descriptors that are handed back"),
        (plan.closures.is_empty(), "pre_exec"),
        (!sigchld_discards(), "the caller ignores SIGCHLD"),
        (plan.head().environment == 0, "the plan is not prepared"),
    ];
    if let Some((_, why)) = conditions.iter().find(|(holds, _)| !holds) {
        return Err((*why).into());
    }
    for op in plan.steps() {
        let suits = match op.code {
            OpCode::Table | OpCode::Place | OpCode::Taken | OpCode::CloseOthers => true,
            OpCode::SetSid | OpCode::SetPgid | OpCode::Chdir | OpCode::Open | OpCode::Dup => true,
            OpCode::SigDefault | OpCode::SigIgnore | OpCode::SigMask => true,
            OpCode::Call => plan.call(op).is_some_and(is_same_without_exec),
            _ => false,
        };
        if !suits && !planted!("warm-settings-not-looked-at") {
            return Err("a setting that exec may interpret, or that was not checked yet".into());
        }
    }
    match plan.op(plan.last_op()).code {
        OpCode::Exec => Ok(()),
        _ => Err("the program is a descriptor".into()),
    }
}

/// Whether exec does not look at what a system call has changed.
fn is_same_without_exec(call: &Call) -> bool {
    match call.number {
        uapi::__NR_umask | uapi::__NR_fchdir | uapi::__NR_setpriority | uapi::__NR_ioprio_set => true,
        // Exec reads the limits of the stack and of memory.
        uapi::__NR_prlimit64 => {
            let resources = [uapi::RLIMIT_CPU, uapi::RLIMIT_FSIZE, uapi::RLIMIT_CORE, uapi::RLIMIT_NOFILE];
            call.args[0] == 0 && resources.iter().any(|&resource| u64::from(resource) == call.args[1])
        }
        _ => false,
    }
}

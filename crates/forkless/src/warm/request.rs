//! What a launch needs of a template: which program, with which environment. And the conditions that depend on the plan
//! alone.

use super::ColdReason;
use crate::launch::wait::is_sigchld_ignored;
use crate::plan::{Creator, Plan};
use crate::route::Launcher;
use forkless_core::plan::{self, Call, OpCode};
use forkless_core::sys::uapi;
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The variables that templates do not depend on: programs that start others change them all the time. The last two are
/// those that GNU parallel and `forkless parallel` set to another number for each job.
const CHANGING: [&[u8]; 6] = [b"PWD=", b"OLDPWD=", b"SHLVL=", b"_=", b"PARALLEL_SEQ=", b"PARALLEL_JOBSLOT="];

/// The longest arguments and environment, in bytes. The kernel takes 128 KiB at least.
const LONGEST: usize = 100 * 1024;

/// A template's program and environment.
pub(super) struct TemplateRequest {
    /// Everything that a template depends on, as strings that end in NUL: path, `argv[0]`, variables.
    pub(super) key: Vec<u8>,
}

impl TemplateRequest {
    /// The error is the reason why no template could be used. The environment is checked by [`check`](Self::check)
    /// alone: a template that exists has passed it with the same environment.
    pub(super) fn of(plan: &Plan) -> Result<Self, ColdReason> {
        suits(plan)?;
        let Some(path) = program(plan) else {
            return Err("the program is a descriptor".into());
        };
        if !path.starts_with(b"/") {
            return Err("the program's path is relative".into());
        }
        // SAFETY: the vectors of a prepared plan lie in its arena, relocated, and end in zero words.
        let (mut args, env) = unsafe {
            let header = plan.header();
            (strings(plan::at(header, (*header).argv)), strings(plan::environment(header)))
        };
        let Some(arg0) = args.next() else { return Err("the program has no name".into()) };
        let mut key = Vec::with_capacity(4096);
        let mut add = |text: &[u8]| {
            key.extend_from_slice(text);
            key.push(0);
        };
        add(path);
        add(arg0);
        let mut length = arg0.len() + 9 + args.map(|text| text.len() + 9).sum::<usize>();
        for text in env {
            length += text.len() + 9;
            let excepted = &CHANGING[..];
            let is_changing = excepted.iter().any(|start| text.starts_with(start));
            if !is_changing {
                add(text);
            }
        }
        match length > LONGEST {
            true => Err("arguments and environment are longer than 100 KiB".into()),
            false => Ok(Self { key }),
        }
    }

    fn part(&self, number: usize) -> &[u8] {
        self.key.split(|&byte| byte == 0).nth(number).unwrap_or_default()
    }

    /// The program's path.
    pub(super) fn program(&self) -> &Path {
        Path::new(OsStr::from_bytes(self.part(0)))
    }

    /// `argv[0]`.
    pub(super) fn arg0(&self) -> &OsStr {
        OsStr::from_bytes(self.part(1))
    }

    /// The variables of a template. An entry without `=` has an empty name.
    pub(super) fn env(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        // The last NUL byte ends the last string.
        let end = self.key.len().saturating_sub(1);
        self.key[..end].split(|&byte| byte == 0).skip(2).map(|text| {
            let at = text.iter().position(|&byte| byte == b'=').unwrap_or(0);
            (OsStr::from_bytes(&text[..at]), OsStr::from_bytes(text.get(at + 1..).unwrap_or_default()))
        })
    }

    /// Whether the environment allows a template. The error is the reason against it.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let mut names = Vec::with_capacity(64);
        for (name, _) in self.env() {
            let name = name.as_bytes();
            if name.is_empty() {
                return Err("environment entry without '='");
            }
            let is_loaders = [&b"LD_"[..], b"GLIBC_TUNABLES", b"MALLOC_", b"GCONV_PATH"];
            if is_loaders.iter().any(|start| name.starts_with(start)) {
                return Err("the environment has a variable for the dynamic loader or libc");
            }
            names.push(name);
        }
        names.sort_unstable();
        match names.windows(2).any(|pair| pair[0] == pair[1]) {
            true => Err("the environment has a variable twice"),
            false => Ok(()),
        }
    }
}

/// The program's path, if the plan names a file.
pub(super) fn program(plan: &Plan) -> Option<&[u8]> {
    plan.candidates(plan.op(plan.last_op())).first().map(|&offset| text(plan, offset))
}

fn text(plan: &Plan, offset: u32) -> &[u8] {
    // SAFETY: the offset is that of a string of this plan, which ends in NUL.
    unsafe { CStr::from_ptr(plan::at(plan.header(), offset)) }.to_bytes()
}

/// The strings of a vector.
///
/// # Safety
/// It holds addresses of strings that live as long as the result, and ends in a zero word.
unsafe fn strings<'a>(mut vector: *const u64) -> impl Iterator<Item = &'a [u8]> {
    std::iter::from_fn(move || {
        // SAFETY: as this function requires, the strings are valid, and a zero word, which is not passed, ends the vector.
        unsafe {
            let address = *vector;
            (address != 0).then(|| {
                vector = vector.add(1);
                CStr::from_ptr(address as *const _).to_bytes()
            })
        }
    })
}

/// Whether all settings of a plan have the same effect without an exec.
fn suits(plan: &Plan) -> Result<(), ColdReason> {
    let conditions = [
        (plan.launcher == Launcher::Clone, "another launcher was selected"),
        (plan.flags == 0, "autoreap or pidfd_autokill"),
        (!plan.fds.inherit_all, "inherit_all"),
        (matches!(plan.creator, Creator::Caller) && !plan.place.names_parent, "a parent-death signal"),
        (
            plan.place.namespaces == 0 && plan.place.id_maps.is_none() && !plan.place.is_foreign,
            "new or joined namespaces",
        ),
        (plan.place.cgroup.is_none() && !plan.place.changes_cgroup, "another cgroup"),
        (!plan.place.is_filtered && !plan.place.changes_ids && !plan.place.vfork, "other ids, capabilities or filters"),
        (plan.fds.pty.is_none(), "a pseudo-terminal"),
        (plan.fds.back.is_none(), "descriptors that are handed back"),
        (!plan.fds.exec_pipe, "a pipe that exec closes"),
        (plan.closures.is_empty(), "pre_exec"),
        (!is_sigchld_ignored(), "the caller ignores SIGCHLD"),
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
        if !suits {
            return Err("a setting that exec may interpret, or that was not checked yet".into());
        }
    }
    match plan.op(plan.last_op()).code {
        OpCode::Exec => Ok(()),
        _ => Err("the program is a descriptor".into()),
    }
}

/// Whether exec ignores what a system call has changed.
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

//! Attributes of a process, as text by name. The probe reads them in the child and the tests in the parent, to compare
//! them.

use crate::state::without_limits;
use crate::table::model::simple;
use forkless::Resource;
use std::collections::BTreeMap;
use std::fs;

/// Name to value.
pub type Observed = BTreeMap<String, String>;

/// The kinds of namespaces as `/proc/PID/ns` names them.
pub const NAMESPACES: [&str; 8] = ["user", "mnt", "net", "uts", "ipc", "pid", "cgroup", "time"];

/// The value of an attribute that could not be determined.
pub const UNKNOWN: &str = "?";

/// The attributes of the calling process, without those that are fields of [`crate::table::Report`].
pub fn observe() -> Observed {
    let mut found = Observed::new();
    let mut put = |name: &str, value: String| found.insert(name.to_owned(), value);
    for (number, name) in (0..).zip(Resource::ALL.map(Resource::name)) {
        // SAFETY: the kernel writes a limit.
        let limit = unsafe {
            let mut limit: libc::rlimit = std::mem::zeroed();
            libc::getrlimit(number, &raw mut limit);
            limit
        };
        put(&format!("limit.{name}"), format!("{} {}", amount(limit.rlim_cur), amount(limit.rlim_max)));
    }
    let mut ids = [[0u32; 3]; 2];
    let [[ur, ue, us], [gr, ge, gs]] = &mut ids;
    let mut groups = [0; 64];
    let (mut signal, mut cpus, mut priority) = (0i32, [0u64; 1024], [0i32; 12]);
    // SAFETY: each writes into the given places, which are large enough, or reads a number.
    unsafe {
        libc::getresuid(ur, ue, us);
        libc::getresgid(gr, ge, gs);
        let count = libc::getgroups(groups.len() as i32, groups.as_mut_ptr()).max(0) as usize;
        put("groups", join(&groups[..count], ","));
        libc::prctl(libc::PR_GET_PDEATHSIG, &raw mut signal);
        put("parent_death_signal", signal.to_string());
        let bytes = libc::syscall(libc::SYS_sched_getaffinity, 0, size_of_val(&cpus), cpus.as_mut_ptr());
        let is_in = |cpu: &usize| cpus[cpu / 64] >> (cpu % 64) & 1 == 1;
        put("affinity", join(&(0..bytes.max(0) as usize * 8).filter(is_in).collect::<Vec<_>>(), ","));
        let policy = libc::syscall(libc::SYS_sched_getscheduler, 0);
        libc::syscall(libc::SYS_sched_getparam, 0, priority.as_mut_ptr());
        put("scheduler", format!("{policy} {}", priority[0]));
        let io = libc::syscall(libc::SYS_ioprio_get, 1, 0);
        put("io_priority", format!("{} {}", io >> 13, io & 0x1fff));
        put("no_new_privs", libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0).to_string());
        put("securebits", format!("{:#x}", libc::prctl(libc::PR_GET_SECUREBITS)));
        let mut name: libc::utsname = std::mem::zeroed();
        libc::uname(&raw mut name);
        put("hostname", std::ffi::CStr::from_ptr(name.nodename.as_ptr()).to_string_lossy().into_owned());
    }
    put("uid", join(&ids[0], " "));
    put("gid", join(&ids[1], " "));
    without_limits(|| files(&mut found));
    found.extend(without_limits(simple::observe));
    found
}

/// Attributes that are only available in files.
fn files(found: &mut Observed) {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_else(|_| UNKNOWN.into());
    let mut put = |name: &str, value: String| found.insert(name.to_owned(), value);
    // Not read as text: a program's name may be any bytes.
    let status = String::from_utf8_lossy(&fs::read("/proc/self/status").unwrap_or_default()).into_owned();
    let field = |key: &str| {
        status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':')).map_or(UNKNOWN, str::trim).to_owned()
    };
    for (name, key) in [
        ("cap.inheritable", "CapInh"),
        ("cap.permitted", "CapPrm"),
        ("cap.effective", "CapEff"),
        ("cap.bounding", "CapBnd"),
        ("cap.ambient", "CapAmb"),
    ] {
        let bits = u64::from_str_radix(&field(key), 16);
        put(name, bits.map_or(UNKNOWN.into(), |bits| format!("{bits:#x}")));
    }
    put("seccomp", field("Seccomp"));
    put("filters", field("Seccomp_filters"));
    for kind in NAMESPACES {
        let link = fs::read_link(format!("/proc/self/ns/{kind}"));
        put(&format!("ns.{kind}"), link.map_or(UNKNOWN.into(), |link| link.to_string_lossy().into_owned()));
    }
    for (name, file) in [("uid_map", "uid_map"), ("gid_map", "gid_map"), ("setgroups", "setgroups")] {
        put(name, text(&format!("/proc/self/{file}")).split_whitespace().collect::<Vec<_>>().join(" "));
    }
    let group = text("/proc/self/cgroup");
    put("cgroup", group.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or(UNKNOWN).into());
    let stat = text("/proc/self/stat");
    let fields: Vec<&str> = stat.rsplit_once(") ").map_or(vec![], |(_, rest)| rest.split(' ').collect());
    let number = |n: usize| fields.get(n).and_then(|field| field.parse::<i32>().ok()).unwrap_or(-1);
    put("terminal", if number(4) > 0 { "yes" } else { "no" }.into());
    // SAFETY: reads a number.
    put("foreground", if number(5) == unsafe { libc::getpgrp() } { "yes" } else { "no" }.into());
}

fn amount(limit: u64) -> String {
    if limit == libc::RLIM_INFINITY { "unlimited".into() } else { limit.to_string() }
}

fn join<T: ToString>(values: &[T], between: &str) -> String {
    values.iter().map(T::to_string).collect::<Vec<_>>().join(between)
}

//! A model of random combinations of settings: it predicts a refusal, the failure of a step, or the child's attributes.

use super::parent::{self, Place};
use super::settings::Settings;
use super::{Ask, Report, ask, encode, signal};
use crate::observe::{Observed, observe};
use crate::process::is_kernel_at_least;
use crate::state::State;
use forkless::{Child, Command, Error, Launcher, Stdio};
use privileges::{ADMIN, CHROOT, NICE, RESOURCE, SETGID, SETUID, Sets};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::process::ExitStatus;
use std::{fs, io};

mod privileges;

pub mod simple;

/// The settings, in the order of the calls.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct List {
    /// Returns before exec.
    pub launch: bool,
    /// By fork.
    #[serde(default)]
    pub fork: bool,
    /// Words of an [`Ask`], one thing or a few each, none of them said twice, but for what signals do: there the last word
    /// counts.
    pub one: Vec<String>,
    /// What the prediction goes by in place of them: for controls.
    #[serde(default)]
    pub lie: Vec<String>,
}

fn asked(words: &[String]) -> Vec<Ask> {
    words.iter().map(|words| toml::from_str(words).unwrap_or_else(|error| panic!("{words}: {error}"))).collect()
}

/// The steps in the order in which they are played: docs/design/order.md. A second word tells steps of one name apart.
const ORDER: [&str; 33] = [
    "JoinNamespace pid",
    "Clone",
    "JoinNamespace",
    "PassFd",
    "Namespace",
    "Hostname",
    "OomScore",
    "Mount",
    "MakeDir",
    "Rlimit",
    "Nice",
    "Scheduler",
    "Affinity",
    "SetSid",
    "SetPgid",
    "Terminal",
    "Foreground",
    "Chroot",
    "Chdir root",
    "PivotRoot",
    "Capabilities bounding",
    "Securebits",
    "SetGroups",
    "SetGid",
    "SetUid",
    "Chdir",
    "Open",
    "Dup",
    "Call",
    "HandBack",
    "Capabilities",
    "Landlock",
    "Seccomp",
];

/// The prediction for a list.
#[derive(Debug, Default)]
struct Prediction {
    /// The request itself is refused.
    refused: Vec<&'static str>,
    /// Steps that would fail; the first in the order of the plan does.
    failing: BTreeSet<usize>,
    /// What the child finds where it is not the parent's; `*`: not looked at, `!`: other than the parent's.
    child: Observed,
    umask: Option<u32>,
    cwd: Option<String>,
    /// Number to target and mode; `like N`: as the parent's own; `*`: whatever.
    fds: BTreeMap<i32, String>,
    ignored: BTreeSet<i32>,
    blocked: BTreeSet<i32>,
    /// Its place among processes.
    is_init: bool,
    is_outside: bool,
    leads_session: bool,
    leads_group: bool,
    handed_back: Vec<String>,
}

impl Prediction {
    fn fail(&mut self, step: &str, is: bool) {
        if is {
            self.failing.insert(ORDER.iter().position(|known| *known == step).expect(step));
        }
    }

    fn refuse(&mut self, why: &'static str, is: bool) {
        if is {
            self.refused.push(why);
        }
    }

    fn put(&mut self, name: &str, value: impl ToString) {
        self.child.insert(name.to_owned(), value.to_string());
    }
}

/// The parent as it was before.
struct Before {
    state: State,
    set: Observed,
}

/// Plays a list in this process. Returns the errors.
pub fn play(list: &List, nobody: bool, place: &Place) -> io::Result<Vec<String>> {
    fs::create_dir(place.file("t"))?;
    let (said, lie) = (asked(&list.one), asked(&list.lie));
    let all = || said.iter().chain(&lie);
    prepare(all(), place, nobody)?;
    let file = ask::report_file(place);
    let mut command = Command::new(&place.probe);
    command.arg("--report").arg(&file).stdin(Stdio::null());
    for one in &said {
        ask::add(one, &mut command, place)?;
    }
    if list.fork {
        command.launcher(Launcher::Fork);
    }
    // The command itself holds descriptors.
    let before = Before { state: State::now(), set: observe() };
    let hides_memory = !list.fork && !is_kernel_at_least(5, 16);
    let child = if list.launch { command.launch() } else { command.spawn() };
    let answer = child.and_then(ended);
    let mut wrong = before.state.differences(&State::now());
    wrong.extend(simple::changes(&before.set));
    let right = predict(if lie.is_empty() { &said } else { &lie }, &before, place, hides_memory, list.fork);
    // For who counts what the lists come to.
    parent::complain(match &answer {
        Ok(_) => "ran",
        Err(_) if right.refused.is_empty() => "failed",
        Err(_) => "refused",
    });
    // Whatever the child's umask has made of it.
    let _ = fs::set_permissions(&file, fs::Permissions::from_mode(0o600));
    let report = fs::read_to_string(&file).ok().map(|text| toml::from_str::<Report>(&text).expect("a report"));
    match (answer, report) {
        (Err(error), None) => {
            let step = Error::of(&error).map(|error| format!("{:?}", error.step())).unwrap_or_default();
            let first = right.failing.first().and_then(|&first| ORDER[first].split(' ').next());
            let expected = if right.refused.is_empty() { first } else { Some("Check") };
            // What another child is born with, a forked one does itself.
            let born = list.fork && expected == Some("Clone") && matches!(step.as_str(), "Namespace" | "ControlGroup");
            if expected != Some(step.as_str()) && !born {
                wrong.push(format!("{step} failed ({error}), should be {expected:?}, predicted was {right:?}"));
            }
        }
        (Ok(end), Some(report)) if end.status.success() => {
            if !right.refused.is_empty() || !right.failing.is_empty() {
                wrong.push(format!("succeeded, predicted was {right:?}"));
            }
            compare(&mut wrong, &right, &report, &before);
            compare_place(&mut wrong, &right, &report, &before, end.pid);
            if end.handed_back != right.handed_back {
                wrong.push(format!("handed back was {:?}, should be {:?}", end.handed_back, right.handed_back));
            }
        }
        (answer, report) => wrong.push(format!("{answer:?}, with a report: {}", report.is_some())),
    }
    if all().any(|one| one.set.cgroup.is_some()) {
        parent::remove_cgroup();
    }
    Ok(wrong)
}

/// The parent is like this: some signals ignored, some blocked, two files open, and what a list needs besides.
fn prepare<'a>(mut asked: impl Iterator<Item = &'a Ask> + Clone, place: &Place, nobody: bool) -> io::Result<()> {
    let join = |one: &Ask| one.set.join.iter().any(|[_, path]| path.ends_with("/33"));
    let parent = super::Parent {
        nobody,
        open: [("20".into(), "a".into())].into(),
        leak: [("21".into(), "b".into())].into(),
        ignore: vec!["SIGUSR2".into(), "40".into()],
        block: vec!["SIGWINCH".into(), "64".into()],
        terminal: asked.clone().any(|one| one.fd.get("0").is_some_and(|source| source == "fd 31")),
        other_pids: asked.any(join).then(|| "alive".into()),
        ..super::Parent::default()
    };
    parent::become_it(&parent, place)
}

/// A child that has ended.
#[derive(Debug)]
struct End {
    pid: i32,
    status: ExitStatus,
    handed_back: Vec<String>,
}

fn ended(mut child: Child) -> io::Result<End> {
    child.wait_exec()?;
    let mut handed_back = Vec::new();
    while let Some(fd) = child.take_handed_back()? {
        handed_back.push(fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))?.to_string_lossy().into_owned());
    }
    Ok(End { pid: child.id() as i32, status: child.wait()?, handed_back })
}

fn compare(wrong: &mut Vec<String>, right: &Prediction, report: &Report, before: &Before) {
    for (name, parents) in &before.set {
        let (found, right) = (&report.set[name], right.child.get(name).unwrap_or(parents));
        let fits = match right.as_str() {
            "*" => true,
            "!" => found != parents,
            "cgroup" => found.ends_with(&parent::cgroup_name()),
            _ => found == right,
        };
        if !fits {
            wrong.push(format!("{name} is {found:?}, should be {right:?}"));
        }
    }
    let found = u32::from_str_radix(&report.umask, 8).ok();
    if found != Some(right.umask.unwrap_or(before.state.umask)) {
        wrong.push(format!("the umask is {}", report.umask));
    }
    let cwd = right.cwd.clone().unwrap_or_else(|| before.state.cwd.to_string_lossy().into_owned());
    if report.cwd != cwd {
        wrong.push(format!("cwd is {:?}, should be {cwd:?}", report.cwd));
    }
    for (what, found, right) in
        [("ignored", &report.ignored, &right.ignored), ("blocked", &report.blocked, &right.blocked)]
    {
        if !found.iter().eq(right) {
            wrong.push(format!("{what} signals are {found:?}, should be {right:?}"));
        }
    }
    if report.caught.iter().any(|signal| ![32, 33].contains(signal)) {
        wrong.push(format!("signals with a handler are {:?}", report.caught));
    }
    let numbers: BTreeSet<i32> = report.fds.keys().map(|number| number.parse().expect("a number")).collect();
    if !numbers.iter().eq(right.fds.keys()) {
        wrong.push(format!("descriptors are {numbers:?}, should be {:?}", right.fds.keys()));
    }
    for (number, expected) in &right.fds {
        let found = report.fds.get(&number.to_string()).map_or("closed", String::as_str);
        let bare = found.rsplit_once(' ').map_or(found, |(target, _)| target);
        let parents = expected.strip_prefix("like ").map(|number| {
            before
                .state
                .fds
                .get(&number.parse().expect("like N"))
                .map_or("closed".into(), |fd| encode(fd.target.as_bytes()))
        });
        let fits = if let Some(parents) = &parents { bare == parents } else { expected == "*" || found == expected };
        if !fits {
            wrong.push(format!("fd {number} is {found:?}, should be {expected:?} {parents:?}"));
        }
    }
}

/// The child among processes.
fn compare_place(wrong: &mut Vec<String>, right: &Prediction, report: &Report, before: &Before, pid: i32) {
    let outside = right.is_init || right.is_outside;
    let own = if right.is_init { 1 } else { pid };
    if right.is_outside && report.pid == 1 || !right.is_outside && report.pid != own {
        wrong.push(format!("the pid is {}, outside {pid}", report.pid));
    }
    let parent = if outside { 0 } else { std::process::id() as i32 };
    let [group, session] = if outside { [0, 0] } else { before.state.groups };
    let session = if right.leads_session { report.pid } else { session };
    let group = if right.leads_session || right.leads_group { report.pid } else { group };
    for (what, found, right) in [
        ("the parent", report.ppid, parent),
        ("the session", report.sid, session),
        ("the process group", report.pgid, group),
    ] {
        if found != right {
            wrong.push(format!("{what} is {found}, should be {right}"));
        }
    }
}

/// What is said, and what the child has when its steps begin.
struct World<'a> {
    asked: &'a [Ask],
    list: Vec<Settings>,
    before: &'a Before,
    place: &'a Place,
    /// It is forked.
    forks: bool,
    /// Over everything; over what is in the child's own namespaces.
    outer: Sets,
    inner: Sets,
    /// Under a filter the child's files in /proc belong to root: docs/platforms.md, Linux 5.16.
    hides_memory: bool,
}

impl World<'_> {
    fn has_any(&self, is: impl Fn(&Settings) -> bool) -> bool {
        self.list.iter().any(is)
    }

    fn has_new(&self, kind: &str) -> bool {
        self.has_any(|one| one.unshare.iter().any(|made| made == kind))
    }

    fn has_joined(&self, kind: &str) -> bool {
        self.has_any(|one| one.join.iter().any(|[joined, _]| joined == kind))
    }

    fn is_now(&self, name: &str, id: u32) -> bool {
        self.before.set[name].split(' ').next() == Some(&id.to_string())
    }

    fn has_pivot(&self) -> bool {
        self.has_any(|one| one.pivot_root.is_some())
    }
}

/// What the words say together.
fn predict(asked: &[Ask], before: &Before, place: &Place, hides_memory: bool, forks: bool) -> Prediction {
    let list: Vec<Settings> = asked.iter().map(|one| one.set.clone()).collect();
    let user_namespace = list.iter().any(|one| one.unshare.iter().any(|made| made == "User"));
    let sets = Sets::of(&before.set);
    // In a namespace of its own the child has nothing outside.
    let [outer, inner] =
        if user_namespace { [Sets { effective: 0, ..sets }, Sets::of_namespace()] } else { [sets, sets] };
    let world = World { asked, list, before, place, forks, outer, inner, hides_memory };
    let mut found = Prediction::default();
    namespaces(&world, &mut found);
    mounts(&world, &mut found);
    for one in &world.list {
        resources(&world, one, &mut found);
        identity(&world, one, &mut found);
    }
    capabilities(&world, &mut found);
    signals(&world, &mut found);
    descriptors(&world, &mut found);
    session(&world, &mut found);
    found.refuse("the first process of a namespace", world.forks && found.is_init);
    // Best effort is offered for this step alone.
    if world.has_any(|one| one.best_effort.iter().any(|step| step == "Nice")) {
        let nice = ORDER.iter().position(|known| *known == "Nice").expect("a step");
        if found.failing.remove(&nice) {
            found.child.remove("nice");
        }
    }
    // The kernel gives a real-time thread none.
    if world.has_any(|one| one.scheduler.as_ref().is_some_and(|(_, priority)| *priority > 0)) {
        found.put("timer_slack", "*");
    }
    found
}

fn namespaces(world: &World<'_>, found: &mut Prediction) {
    if world.has_new("User") {
        for name in ["uid", "gid"] {
            found.put(name, "0 0 0");
        }
        for name in ["uid_map", "gid_map", "setgroups", "groups"] {
            found.put(name, "*");
        }
    }
    for kind in world.list.iter().flat_map(|one| &one.unshare) {
        let names = [("Mount", "mnt"), ("Network", "net")];
        let name =
            names.iter().find(|(known, _)| known == kind).map_or(kind.to_lowercase(), |(_, name)| (*name).into());
        // Before Linux 6.3 exec does not enter a new time namespace; only the program's children are in it.
        let is_entered = kind != "Time" || is_kernel_at_least(6, 3);
        found.put(&format!("ns.{name}"), if is_entered { "!" } else { "*" });
        found.refuse("a namespace made and joined", world.has_joined(kind));
        let step = if kind == "Time" { "Namespace" } else { "Clone" };
        found.fail(step, !world.inner.has(ADMIN));
    }
    found.is_init = world.has_new("Pid");
    for [kind, path] in world.list.iter().flat_map(|one| &one.join) {
        found.refuse("a time namespace joined", kind == "Time");
        if kind == "Pid" {
            let dies = |one: &Settings| one.parent_death_signal.is_some() || one.thread_death_signal.is_some();
            found.refuse("a parent-death signal", world.has_any(dies));
            // By the caller's side, which is where it was.
            found.fail("JoinNamespace pid", !Sets::of(&world.before.set).has(ADMIN));
            // The last one said counts.
            found.is_outside = path.ends_with("/33");
        } else {
            found.fail("JoinNamespace", !world.outer.has(ADMIN));
        }
    }
    if found.is_outside {
        found.put("ns.pid", "!");
    }
    for group in world.list.iter().filter_map(|one| one.cgroup.as_deref()) {
        found.put("cgroup", "cgroup");
        found.fail("Clone", group == "gone" || group == "mounted");
    }
    if world.has_new("Cgroup") {
        found.put("cgroup", "*");
    }
    if let Some(name) = world.list.iter().find_map(|one| one.hostname.as_ref()) {
        found.put("hostname", name);
        found.refuse("hostname", !world.has_new("Uts") && !world.has_joined("Uts"));
    }
}

fn mounts(world: &World<'_>, found: &mut Prediction) {
    let mounts = world.list.iter().flat_map(|one| &one.mount);
    let any = world.has_any(|one| !one.mount.is_empty() || one.pivot_root.is_some());
    found.refuse("mount", any && !world.has_new("Mount"));
    found.refuse("two roots", world.has_pivot() && world.has_any(|one| one.chroot.is_some()));
    let is_seen = |one: &String| one.starts_with("make_") || one.contains("{dir}/none");
    let misses = world.has_any(|one| one.chroot.as_deref() == Some("{dir}/none")) && !mounts.clone().all(is_seen);
    found.refuse("a mount outside of the new root", misses && world.has_new("Mount"));
    for mount in mounts {
        let fails = mount.contains("{dir}/none") || mount.starts_with("unmount");
        found.fail(if mount.starts_with("make_dir") { "MakeDir" } else { "Mount" }, fails);
    }
    for root in world.list.iter().filter_map(|one| one.pivot_root.as_ref()) {
        found.fail("Chdir root", root.contains("none"));
        found.cwd = Some("/".into());
    }
    for root in world.list.iter().filter_map(|one| one.chroot.as_ref()) {
        found.fail("Chroot", root != "/" || !world.inner.has(CHROOT));
        found.cwd = Some("/".into());
    }
    for directory in world.asked.iter().filter_map(|one| one.cwd.as_ref()) {
        found.fail("Chdir", directory.contains("none"));
        found.cwd = Some(world.place.text(directory));
    }
}

fn resources(world: &World<'_>, one: &Settings, found: &mut Prediction) {
    let before = &world.before.set;
    for (name, [soft, hard]) in &one.rlimit {
        found.put(&format!("limit.{name}"), format!("{soft} {hard}"));
        let known = before[&format!("limit.{name}")].rsplit(' ').next().and_then(|hard| hard.parse::<i64>().ok());
        found.fail("Rlimit", soft > hard || known.is_some_and(|known| *hard > known) && !world.outer.has(RESOURCE));
    }
    if let Some((policy, priority)) = &one.scheduler {
        let number = ["Other", "Fifo", "RoundRobin", "Batch", "", "Idle"].iter().position(|known| known == policy);
        found.put("scheduler", format!("{} {priority}", number.expect("a policy")));
        found.put("io_priority", "*");
        found.fail("Scheduler", *priority > 0 && !world.outer.has(NICE));
    }
    if let Some(cpus) = &one.affinity {
        found.put("affinity", cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(","));
        found.refuse("affinity", cpus.is_empty());
        found.fail("Affinity", cpus.contains(&60000));
    }
    simple::predict(world, one, found);
}

fn identity(world: &World<'_>, one: &Settings, found: &mut Prediction) {
    let user_namespace = world.has_new("User");
    if let Some(uid) = one.uid {
        found.put("uid", format!("{uid} {uid} {uid}"));
        let may = if user_namespace { uid == 0 } else { world.outer.has(SETUID) || world.is_now("uid", uid) };
        found.fail("SetUid", !may);
        // Root's own groups are not for others.
        if world.is_now("uid", 0) && !world.has_any(|one| one.groups.is_some()) {
            found.put("groups", "");
            found.fail("SetGroups", !world.inner.has(SETGID));
        }
    }
    if let Some(gid) = one.gid {
        found.put("gid", format!("{gid} {gid} {gid}"));
        let may = if user_namespace { gid == 0 } else { world.outer.has(SETGID) || world.is_now("gid", gid) };
        found.fail("SetGid", !may);
    }
    if let Some(groups) = &one.groups {
        found.put("groups", groups.iter().map(u32::to_string).collect::<Vec<_>>().join(","));
        let unmapped = user_namespace && groups.iter().any(|&gid| gid != 0);
        // In a namespace whose maker could not set them, nobody may.
        found.fail("SetGroups", unmapped || !Sets::of(&world.before.set).has(SETGID));
    }
    // A user by name and one by number are the same setting: the last one said counts.
    let user = world.list.iter().rev().find(|one| one.user.is_some() || one.uid.is_some());
    found.refuse("user", user.is_some_and(|one| one.user.is_some()));
    if let Some(mask) = one.umask {
        found.umask = Some(mask);
        found.refuse("umask", mask > 0o777);
    }
    if one.no_new_privs {
        found.put("no_new_privs", 1);
    }
    for name in [&one.parent_death_signal, &one.thread_death_signal].into_iter().flatten() {
        found.put("parent_death_signal", signal(name));
        found.refuse("parent_death_signal", !(1..=64).contains(&signal(name)));
    }
}

/// PER_CLEAR_ON_SETID.
const CLEARED_PERSONALITIES: u32 = 0x74_0000;

/// Capabilities, and the filters that need one or a promise.
fn capabilities(world: &World<'_>, found: &mut Prediction) {
    let was_root = world.has_new("User") || world.is_now("uid", 0);
    let uid = world.list.iter().find_map(|one| one.uid);
    let leaves_root = was_root && uid.is_some_and(|uid| uid != 0);
    let no_new_privs = world.has_any(|one| one.no_new_privs);
    let way = world.inner.steps(&world.list, leaves_root);
    for step in way.failing {
        found.fail(step, true);
    }
    let is_root = was_root && !leaves_root;
    let after = way.sets.after_exec(is_root, no_new_privs);
    after.put(&mut found.child);
    // capabilities(7) and prctl(2): exec that gives capabilities forgets these.
    if let Some(persona) = world.list.iter().find_map(|one| one.personality).filter(|_| way.sets.can_gain(is_root)) {
        found.put("personality", format!("{:#x}", persona & !CLEARED_PERSONALITIES));
    }
    if after.permitted & !way.sets.permitted != 0 && found.child.contains_key("parent_death_signal") {
        found.put("parent_death_signal", 0);
    }
    let may_filter = no_new_privs || way.sets.has(ADMIN);
    found.fail("Landlock", world.has_any(|one| one.landlock.is_some()) && !may_filter);
    if world.has_any(|one| one.seccomp.is_some()) {
        found.fail("Seccomp", !may_filter);
        found.put("seccomp", 2);
        found.put("filters", world.before.set["filters"].parse().unwrap_or(0) + 1);
    }
}

/// What signals do, in the order of the words.
fn signals(world: &World<'_>, found: &mut Prediction) {
    const SIGPIPE: i32 = 13;
    let actions = (1..).zip(&world.before.state.actions);
    let inherited: BTreeSet<i32> = actions.filter(|(_, action)| action.handler == 1).map(|(n, _)| n).collect();
    let masked = |n: &i32| world.before.state.mask >> (n - 1) & 1 == 1;
    found.ignored = inherited.iter().copied().filter(|&n| n != SIGPIPE).collect();
    for one in world.asked {
        let said = [&one.signal_default, &one.signal_ignore, &one.signal_inherit]
            .map(|names| names.iter().map(|name| signal(name)).collect::<Vec<_>>());
        for number in said.iter().flatten().chain(&numbers(&one.signal_block)) {
            found.refuse("a signal that is none", !(1..=64).contains(number));
        }
        let [default, ignore, inherit] = said;
        found.refuse("SIGKILL and SIGSTOP", ignore.contains(&libc::SIGSTOP));
        found.ignored.retain(|n| !default.contains(n) && !inherit.contains(n));
        found.ignored.extend(inherit.iter().filter(|n| inherited.contains(n)));
        found.ignored.extend(ignore);
        found.blocked.extend(numbers(&one.signal_block));
    }
    if world.asked.iter().all(|one| one.inherit_mask) {
        found.blocked.extend((1..=64).filter(masked));
    }
}

fn numbers(names: &[String]) -> Vec<i32> {
    names.iter().map(|name| signal(name)).collect()
}

fn descriptors(world: &World<'_>, found: &mut Prediction) {
    let all = world.asked.iter().any(|one| one.inherit_all);
    found.fds = [(0, "/dev/null rw".into()), (1, "like 1".into()), (2, "like 2".into())].into();
    if all {
        let parents = world.before.state.fds.iter().filter(|(_, fd)| !fd.cloexec).map(|(&number, _)| number);
        found.fds.extend(parents.filter(|&number| number > 2).map(|number| (number, format!("like {number}"))));
    }
    let said = || world.asked.iter().flat_map(|one| &one.fd);
    for (number, source) in said() {
        let number = number.parse().expect("a number");
        let target = match source.split_once(' ').unwrap_or((source, "")) {
            ("null", _) => "/dev/null rw".into(),
            ("fd", "600") => {
                found.fail("PassFd", true);
                continue;
            }
            ("fd", source) => format!("like {source}"),
            ("dup", source) => {
                // One of the standard streams, or another that is said.
                let known = said().find(|(number, _)| *number == source);
                let is_there = known.is_some() || source == "1";
                found.refuse("a copy of nothing", !is_there && !all);
                found.fail("Dup", !is_there);
                if source == "1" { "like 1".into() } else { "like 20".into() }
            }
            ("open", how) => {
                found.fail("Open", how.contains("none"));
                "/dev/null r".into()
            }
            _ => panic!("{source} is not among the choices"),
        };
        found.fds.insert(number, target);
    }
    for call in world.list.iter().flat_map(|one| &one.call) {
        found.fail("Call", call.args.iter().any(|arg| arg.contains("none")));
        if call.name == "dup3" {
            found.fds.insert(call.args[1].parse().expect("a number"), "/dev/null r".into());
        }
    }
    for variable in world.list.iter().flat_map(|one| &one.hand_back) {
        found.fail("HandBack", *variable != 3);
        found.handed_back.push(world.place.text("{dir}/a"));
    }
    if world.has_pivot() {
        // What comes from the old root has no name in the new one.
        let outer = |target: &&mut String| target.starts_with("like") || target.ends_with("rw");
        found.fds.values_mut().filter(outer).for_each(|target| *target = "*".into());
    }
}

fn session(world: &World<'_>, found: &mut Prediction) {
    found.leads_session = world.asked.iter().any(|one| one.setsid);
    let group = world.asked.iter().find_map(|one| one.process_group);
    found.leads_group = group == Some(0);
    found.refuse("setsid and process_group", found.leads_session && group.is_some());
    found.fail("SetPgid", group.is_some_and(|group| group != 0));
    let terminal = world.has_any(|one| one.terminal.is_some());
    let foreground = world.has_any(|one| one.foreground.is_some());
    let is_terminal = world.asked.iter().any(|one| one.fd.get("0").is_some_and(|source| source == "fd 31"));
    found.refuse("a terminal without a session", terminal && !found.leads_session);
    found.fail("Terminal", terminal && !is_terminal);
    found.fail("Foreground", foreground && !(terminal && is_terminal));
    let yes = |is: bool| if is { "yes" } else { "no" };
    if found.leads_session {
        found.put("terminal", yes(terminal));
        found.put("foreground", yes(foreground));
    }
    if found.leads_group || found.is_init || found.is_outside {
        found.put("foreground", "*");
    }
}

//! Plays the behaviour table: every case on every route.

testing::usual_surroundings!();

use forkless_tests::process;
use forkless_tests::table::{BY_ZYGOTE, Case, OTHER_LAUNCHERS, ROUTES, load};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/cases");

/// Cases that a zygote does not support, and its error messages.
const NOT_BY_ZYGOTE: [(&str, &str); 5] = [
    (
        "a signal at the thread's death",
        "a zygote cannot do thread_death_signal: its children are not cloned by the calling thread",
    ),
    // The helper needs a descriptor for its socket.
    ("no descriptor for a pidfd", "Too many open files"),
    ("no descriptor for a pidfd, and none asked for", "Too many open files"),
    ("no descriptor for a pidfd, and status needs none", "Too many open files"),
    ("no descriptor for a pipe", "Too many open files"),
];

/// The message with which a zygote must refuse this case.
fn refusal(case: &Case) -> Option<&'static str> {
    if case.ask.inherit_all {
        return Some("a zygote cannot do inherit_all: it does not have the caller's descriptors");
    }
    NOT_BY_ZYGOTE.iter().find(|(name, _)| *name == case.name).map(|(_, why)| *why)
}

/// Plays each case on each route, in a process of its own, a few at a time.
#[test]
fn table() {
    let cases = load(Path::new(CASES)).expect("the table can be read");
    let mut names: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
    names.sort_unstable();
    assert!(names.windows(2).all(|two| two[0] != two[1]), "two cases have one name");
    // One case alone: FORKLESS_CASE=part of its name; one route: FORKLESS_ROUTE; each n-th play: FORKLESS_PLAYS=n.
    let wanted = std::env::var("FORKLESS_CASE").unwrap_or_default();
    let wanted_route = std::env::var("FORKLESS_ROUTE").unwrap_or_default();
    let every = std::env::var("FORKLESS_PLAYS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let plays: Vec<(&Case, String)> = cases
        .iter()
        .filter(|case| case.name.contains(&wanted))
        .flat_map(|case| routes(case).into_iter().map(move |route| (case, route)))
        .filter(|(_, route)| route.contains(&wanted_route))
        .step_by(every)
        .collect();
    let scratch = process::scratch();
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, |n| n.get()) {
            scope.spawn(|| {
                while let Some((case, route)) = plays.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match (play(case, route, scratch.path()), refusal(case).filter(|_| route == BY_ZYGOTE)) {
                        (Ok(()), None) => {}
                        (Err(what), Some(why)) if what.contains(why) => {}
                        (Err(what), _) => wrong.lock().unwrap().push(what),
                        (Ok(()), Some(why)) => {
                            wrong.lock().unwrap().push(format!("{} [{route}]: should be refused: {why}\n", case.name));
                        }
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    eprintln!("{} cases, played {} times, each through up to 8 front ends", cases.len(), plays.len());
    assert!(wrong.is_empty(), "{} of {} plays went wrong:\n{}", wrong.len(), plays.len(), wrong.concat());
}

/// Negative controls: each of these expectations is wrong, and the player must report it.
#[test]
fn controls() {
    let wrong = [
        ("child.exit = 1", "the exit code is Some(0), should be Some(1)"),
        ("child.signal = 9", "the ending signal is None"),
        ("child.argv = ['x']", "argv is"),
        ("child.cwd = '/usr'", "cwd is"),
        ("child.fd = { 0 = 'null' }\nfront_ends = ['spawn']", "the child's fd 0 is"),
        ("child.fd = { 9 = 'null' }", "the child's fd 9 is closed, should be /dev/null"),
        ("ask.fd = { 9 = 'null' }", "the child has fd 9: /dev/null rw"),
        ("ask.fd = { 9 = 'null', 8 = 'null' }\nchild.same = [[1, 9]]", "fd 1, as against fd 9"),
        ("child.ignored = ['SIGHUP']", "ignored signals is []"),
        ("child.blocked = ['SIGHUP']", "blocked signals is []"),
        ("child.own_session = true", "the session is"),
        ("child.own_group = true", "the process group is"),
        ("child.in_joined_pids = true", "being process 1, and the parent's pid, is"),
        ("parent.open = { 20 = 'x' }\nchild.set = { 'ns.pid' = 'at 20' }", "ns.pid is \"pid:"),
        ("child.set = { cgroup = 'new' }", "cgroup is"),
        ("ask.then = ['look /nonexistent', 'list /nonexistent']\nchild.read = 'entity not found'", "what was read is"),
        ("child.env = { NO_SUCH = '1' }", "the environment has no NO_SUCH=1"),
        ("ask.env = { A = '1' }\nchild.no_env = ['A']", "the environment has A"),
        ("ask.then = ['say x']\nfront_ends = ['output']", "stdout is \"x\", should be \"\""),
        ("ask.then = ['read']\nask.fd = { 0 = 'piped' }", "what was read is"),
        ("child.files = { x = 'y' }", "file x is"),
        ("ask.silent = true\nask.program = '/nonexistent'", "failed: failed to start"),
        ("error = { step = 'Exec' }", "should have failed"),
        ("ask.cwd = '/nonexistent'\nerror = { step = 'Exec', errno = 'ENOENT' }", "the step is \"Chdir\""),
        ("ask.cwd = '/nonexistent'\nerror = { step = 'Chdir', errno = 'EACCES' }", "the errno is Some(2)"),
        ("ask.cwd = '/nonexistent'\nerror = { step = 'Chdir', errno = 'ENOENT', text = ['x y'] }", "does not contain"),
        // A refusal that never matches: the first argument is an address.
        ("routes = ['clone3 EPERM arg0=1']", "the call is Clone3, should be Clone"),
        ("routes = ['close_range EPERM arg0=77']", "the descriptor table is \"Private\""),
        ("routes = ['pidfd_getfd EPERM arg0=-9']\nask.fd = { 1 = 'piped' }", "the passing is PidfdGetfd"),
    ];
    let scratch = process::scratch();
    for (words, complaint) in wrong {
        let case: Case = toml::from_str(&format!("name = 'control'\n{words}")).expect(words);
        let route = case.routes.clone().and_then(|routes| routes.into_iter().next()).unwrap_or("normal".into());
        if complaint == "the passing is PidfdGetfd" && !process::is_kernel_at_least(5, 16) {
            say("SKIPPED: a control of the passing because under any filter nothing is fetched before Linux 5.16\n");
            continue;
        }
        let said = play(&case, &route, scratch.path()).expect_err(words);
        assert!(said.contains(complaint), "{words}: {said}");
    }
}

/// Negative control: changes that a child makes to its parent's state are detected if they are not reverted.
#[test]
fn children_without_guards_are_detected() {
    let is_root = process::is_root();
    for (what, change, needs_root) in [("ids", "dumpable: was 1, is ", true), ("oom", "oom_score_adj: was ", false)] {
        if needs_root && !is_root {
            say(&format!("SKIPPED: control {what} because it needs root\n"));
            continue;
        }
        let helper = Command::new(env!("CARGO_BIN_EXE_case")).args(["--control", what]).output().expect("a helper");
        let said = String::from_utf8_lossy(&helper.stdout).into_owned();
        assert!(said.contains(change), "{what}: {said:?} {}", String::from_utf8_lossy(&helper.stderr));
    }
}

/// Written to the terminal directly, because the harness hides the output of passing tests.
fn say(text: &str) {
    let _ = std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes());
}

fn routes(case: &Case) -> Vec<String> {
    let all = || ROUTES.iter().map(|route| route.name.to_owned()).collect();
    let mut routes = case.routes.clone().unwrap_or_else(all);
    if case.routes.is_some() && routes.iter().any(|route| route == "normal") {
        routes.extend(OTHER_LAUNCHERS.map(String::from));
    }
    routes.extend(case.more_routes.iter().cloned());
    if routes.iter().any(|route| route == "normal") {
        routes.push(BY_ZYGOTE.into());
    }
    routes.retain(|route| !case.not_on.contains(route));
    routes
}

/// `scratch`: where the helper makes its files, some of which it cannot remove: it may end as another user.
fn play(case: &Case, route: &str, scratch: &Path) -> Result<(), String> {
    let helper = Command::new(env!("CARGO_BIN_EXE_case"))
        .env("TMPDIR", scratch)
        .args([&toml::to_string(case).unwrap(), route, env!("CARGO_BIN_EXE_probe")])
        .output()
        .map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&helper.stderr);
    if helper.status.success() {
        say(&said);
        return Ok(());
    }
    let how = if helper.status.code() == Some(1) { String::new() } else { format!(" ({})", helper.status) };
    Err(format!("{} [{route}]{how}:\n{said}", case.name))
}

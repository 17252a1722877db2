//! Options of the tools that `forkless run` can replace, where ours has another name.

/// The tool that has the option, and what to do instead.
pub(crate) fn hint(option: &str) -> Option<(&'static str, &'static str)> {
    let (_, tool, hint) = HINTS.iter().find(|(names, ..)| names.split(' ').any(|name| name == option))?;
    Some((tool, hint))
}

/// The end of a message about a value that the option refuses: what may be meant by it. Empty if that is unknown.
pub(crate) fn value_hint(option: &str, value: &str) -> &'static str {
    match option {
        "--cpu" if value.ends_with('%') => "; for a share of the CPU time, use --cpu-quota",
        "--timeout" | "--kill-after" if value.ends_with("sec") || value.ends_with("secs") => "; write s for seconds",
        "--timeout" | "--kill-after" if value.ends_with("min") || value.ends_with("mins") => "; write m for minutes",
        _ => "",
    }
}

/// The spellings, separated by spaces; the tool; the remedy.
const HINTS: [(&str, &str, &str); 51] = [
    ("--mem --memory-limit", "other tools", "use --memory-max=BYTES"),
    ("-p", "timeout(1) use --preserve-status, for that of unshare(1)", "use --unshare-pid"),
    ("-v --verbose --debug", "env(1) and timeout(1)", "use --route, or --explain to see the steps"),
    ("-S --split-string", "env(1)", "use --shell=LINE"),
    ("-0 --null", "env(1)", "run \"env -0\" as the program"),
    ("--list-signal-handling", "env(1)", "use --explain"),
    ("-n", "nice(1) use --nice=N, for that of unshare(1)", "use --unshare-net"),
    (
        "-c",
        "sh(1) use --shell=LINE, for that of ionice(1) --ionice=CLASS, for that of taskset(1)",
        "use --cpu-list=LIST",
    ),
    ("--class", "ionice(1)", "use --ionice=CLASS[:LEVEL]"),
    ("--fifo --rr --batch --idle --other", "chrt(1)", "use --scheduler=POLICY[:PRIORITY]"),
    ("-R", "setarch(1)", "use --no-aslr"),
    ("--membind --interleave --preferred --localalloc -m", "numactl(8)", "use --memory-policy=POLICY"),
    ("--physcpubind --cpunodebind", "numactl(8)", "use --cpu-list=LIST"),
    ("--pid", "unshare(1)", "use --unshare-pid"),
    (
        "--net --network",
        "unshare(1) and docker(1)",
        "use --unshare-net (the network of the host is the default, in a sandbox by \"--share-net\")",
    ),
    ("--uts", "unshare(1)", "use --unshare-uts"),
    ("--ipc", "unshare(1)", "use --unshare-ipc"),
    ("--time", "unshare(1)", "use --unshare-time"),
    ("-U", "unshare(1)", "use --unshare-user"),
    ("-r", "unshare(1)", "use --map-root-user"),
    ("-f --fork", "unshare(1) and setsid(1)", "leave it out: the program is a process of its own where that is needed"),
    ("-w --wait", "setsid(1)", "leave it out: forkless always waits"),
    ("--mount-proc", "unshare(1)", "use --unshare-pid --proc /proc"),
    ("--map-auto --map-user --map-group", "unshare(1)", "use --map-users and --map-groups=IN:OUT:COUNT"),
    ("-t --target", "nsenter(1)", "use --join=KIND=/proc/PID/ns/KIND"),
    ("--ruid --euid", "setpriv(1)", "use --reuid=NAME, which sets all user IDs"),
    ("--rgid --egid", "setpriv(1)", "use --regid=NAME, which sets all group IDs"),
    ("--reset-env", "setpriv(1)", "use --ignore-environment"),
    ("-d --dump --list-caps", "setpriv(1)", "run \"cat /proc/self/status\" as the program"),
    ("--apparmor-profile --selinux-label", "setpriv(1)", "run aa-exec(1) or runcon(1) as the program"),
    ("-E", "systemd-run(1)", "use --env=NAME=VALUE"),
    ("--property", "systemd-run(1)", "use the option of the limit, such as --memory-max=BYTES"),
    ("--scope", "systemd-run(1)", "use --new-cgroup"),
    ("--slice", "systemd-run(1)", "use --new-cgroup=PARENT"),
    ("--workdir", "docker(1)", "use --chdir=DIR"),
    ("--pipe --collect --remain-after-exit", "systemd-run(1)", "leave it out: the program has the streams of forkless"),
    ("--bind-fd --ro-bind-fd", "bwrap(1)", "use --attach-mount FD DST, or --bind /proc/self/fd/N DST"),
    ("--info-fd", "bwrap(1)", "use --json-status-fd=FD, and /proc/PID/ns for the namespaces"),
    ("--lock-file", "bwrap(1)", "run forkless by flock(1)"),
    ("--disable-userns --assert-userns-disabled", "bwrap(1)", "use --sandbox, which refuses new namespaces"),
    ("--as-pid-1", "bwrap(1)", "leave it out: with --unshare-pid the program is PID 1, except in a --sandbox"),
    ("--cap-drop --cap-add", "bwrap(1) and docker(1)", "use --bounding-set=-CAP and --ambient-caps=+CAP"),
    ("--unshare-user-try --unshare-cgroup-try", "bwrap(1)", "use --unshare-user or --unshare-cgroup"),
    ("--userns --userns2", "bwrap(1)", "use --join=user=PATH"),
    ("--pidns", "bwrap(1)", "use --join=pid=PATH"),
    ("--userspec", "chroot(1)", "use --reuid=NAME and --regid=NAME"),
    ("-l --login --command -g", "su(1) and sudo(8)", "use --reuid=NAME, --regid=NAME or --shell=LINE"),
    ("--volume", "docker(1)", "use --bind SRC DST"),
    ("-e", "docker(1)", "use --env=NAME=VALUE"),
    ("--memory", "docker(1)", "use --memory-max=BYTES"),
    ("--pids-limit", "docker(1)", "use --tasks-max=N"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_for_unknown_options_and_name_known_ones() {
        let mut all = crate::command();
        all.build();
        let run = all.find_subcommand("run").expect("run");
        let known: Vec<String> = run
            .get_arguments()
            .flat_map(|arg| arg.get_long().into_iter().chain(arg.get_all_aliases().unwrap_or_default()))
            .map(|long| format!("--{long}"))
            .collect();
        for (names, tool, hint) in HINTS {
            for name in names.split(' ') {
                let short = |arg: &clap::Arg| arg.get_short().is_some_and(|letter| name == format!("-{letter}"));
                let exists = known.iter().any(|one| one == name) || run.get_arguments().any(short);
                assert!(name.starts_with('-') && !exists, "{name} is an option of forkless run and needs no hint");
            }
            let words = format!("{tool} {hint}");
            for word in words.split([' ', ',']).filter(|word| word.starts_with("--")) {
                let option = word.split('=').next().unwrap_or(word).trim_end_matches(':');
                assert!(known.iter().any(|one| one == option), "{names}: {option}");
            }
        }
    }
}

//! Runs one scenario by name: tests that change, or need, a whole process (its signals, allocator, process group).
//!
//! A test starts it with a time limit and checks its exit status: 0 is success; otherwise a panic's message has the
//! reason. `scenario NAME [ARGS…]`; [`SCENARIOS`] lists the names.

use std::process::ExitCode;

#[path = "../scenario/allocator.rs"]
mod allocator;
#[path = "../scenario/observe.rs"]
mod observe;
#[path = "../scenario/elf.rs"]
mod elf;
#[path = "../scenario/foreign.rs"]
mod foreign;
#[path = "../scenario/launched.rs"]
mod launched;
#[path = "../scenario/launchers.rs"]
mod launchers;
#[path = "../scenario/heap.rs"]
mod heap;
#[path = "../scenario/environment.rs"]
mod environment;
#[path = "../scenario/traced.rs"]
mod traced;
#[path = "../scenario/debugged.rs"]
mod debugged;
#[path = "../scenario/dumps.rs"]
mod dumps;
#[path = "../scenario/oom.rs"]
mod oom;
#[path = "../scenario/leaks.rs"]
mod leaks;
#[path = "../scenario/visibility.rs"]
mod visibility;
#[path = "../scenario/autoreap.rs"]
mod autoreap;
#[path = "../scenario/held.rs"]
mod held;
#[path = "../scenario/holding.rs"]
mod holding;
#[path = "../scenario/busy.rs"]
mod busy;
#[path = "../scenario/stops.rs"]
mod stops;
#[path = "../scenario/storms.rs"]
mod storms;
#[path = "../scenario/hosts.rs"]
mod hosts;
#[path = "../scenario/awaited.rs"]
mod awaited;
#[path = "../scenario/death.rs"]
mod death;
#[path = "../scenario/locks.rs"]
mod locks;
#[path = "../scenario/bounds.rs"]
mod bounds;
#[path = "../scenario/lines.rs"]
mod lines;
#[path = "../scenario/zygote_owner.rs"]
mod zygote_owner;
#[path = "../scenario/strangers.rs"]
mod strangers;
#[path = "../scenario/attributes.rs"]
mod attributes;
#[path = "../scenario/creator.rs"]
mod creator;
#[path = "../scenario/ids.rs"]
mod ids;
#[path = "../scenario/maps.rs"]
mod maps;
#[path = "../scenario/set.rs"]
mod set;
#[path = "../scenario/ends.rs"]
mod ends;
#[path = "../scenario/capture.rs"]
mod capture;
#[path = "../scenario/capture_alone.rs"]
mod capture_alone;
#[path = "../scenario/pipeline.rs"]
mod pipeline;
#[path = "../scenario/zygote.rs"]
mod zygote;
#[path = "../scenario/zygote_bounds.rs"]
mod zygote_bounds;
#[path = "../scenario/zygote_odd.rs"]
mod zygote_odd;
#[path = "../scenario/zygote_scheduling.rs"]
mod zygote_scheduling;
#[path = "../scenario/sigpipe.rs"]
mod sigpipe;
#[path = "../scenario/reported.rs"]
mod reported;
#[path = "../scenario/exec.rs"]
mod exec;
#[path = "../scenario/crowd.rs"]
mod crowd;
#[path = "../scenario/unusual.rs"]
mod unusual;

/// Checks for misuse of the heap, and counts.
#[global_allocator]
static ALLOCATOR: allocator::Watched = allocator::Watched;

/// A scenario: gets the arguments after its name.
type Scenario = fn(&[String]);

/// All scenarios.
const SCENARIOS: &[(&str, Scenario)] = &[
    ("heap-launches", heap::launches),
    ("heap-control-fork", heap::control_fork),
    ("heap-control-clone", heap::control_clone),
    ("heap-count", heap::count),
    ("environment-changes", environment::changes),
    ("environment-taken-out", environment::taken_out),
    ("environment-cost", environment::cost),
    ("traced", traced::run),
    ("dumps-signals", dumps::signals),
    ("dumps-program", dumps::program),
    ("dumps-default", dumps::at_its_default),
    ("dumps-filtered", dumps::filtered),
    ("dumps-probe", dumps::probe),
    ("dumps-control", dumps::control),
    ("oom", oom::supervise),
    ("oom-host", oom::host),
    ("oom-fill", oom::fill),
    ("debugged", debugged::run),
    ("debugged-repeatedly", debugged::repeatedly),
    ("leaks-good", leaks::good),
    ("leaks-running", leaks::running),
    ("leaks-batch", leaks::batch),
    ("leaks-failed", leaks::failed),
    ("leaks-dropped", leaks::dropped),
    ("leaks-control", leaks::control),
    ("dropped-and-reaped", leaks::dropped_and_reaped),
    ("dropped-before-exec", leaks::dropped_before_exec),
    ("dropped-while-churning", leaks::dropped_while_churning),
    ("failed-is-invisible", visibility::failed_is_invisible),
    ("good-is-visible", visibility::good_is_visible),
    ("sigchld-ignored", visibility::sigchld_ignored),
    ("foreign-reaper", visibility::foreign_reaper),
    ("pid-reuse", visibility::pid_reuse),
    ("autoreap-checked", autoreap::checked),
    ("autoreap-missing", autoreap::missing),
    ("autoreap-ends", autoreap::ends),
    ("autoreap-before-exec", autoreap::before_exec),
    ("autoreap-dropped", autoreap::dropped),
    ("autoreap-reused", autoreap::reused),
    ("autoreap-many", autoreap::many),
    ("autoreap-copy", autoreap::copy),
    ("autoreap-settings", autoreap::settings),
    ("autoreap-host", autoreap::host),
    ("autokill", autoreap::autokilled),
    ("autokill-unprivileged", autoreap::unprivileged),
    ("held-waits-refused", held::waits_refused),
    ("held-signalled", held::signalled),
    ("held-copy", held::in_a_forked_copy),
    ("launch-woken", held::launch_is_woken),
    ("launch-returns", held::launch_returns),
    ("child-leaves", held::child_leaves),
    ("clone-refused", held::clone_refused),
    ("busy-forkless", busy::forkless),
    ("busy-control", busy::control),
    ("stopped-before-exec", stops::stopped_before_exec),
    ("stopped-among-signals", stops::stopped_among_signals),
    ("stopped-control", stops::control),
    ("stop-storm", stops::storm),
    ("signal-storm", storms::signals),
    ("signal-control", storms::signal_control),
    ("kill-storm", storms::kills),
    ("thread-storm", storms::threads),
    ("fork-copy", hosts::fork_copy),
    ("fork-storm", hosts::fork_storm),
    ("show-route", hosts::show_route),
    ("first-launch-storm", hosts::first_launch_storm),
    ("main-thread-gone", hosts::main_thread_gone),
    ("own-table", hosts::own_table),
    ("pid-namespace-stranger", hosts::stranger_with_our_number),
    ("pid-namespace", hosts::pid_namespace),
    ("copy-of-the-same-pid", hosts::copy_of_the_same_pid),
    ("awaited-leaks", awaited::leaks),
    ("awaited-dropped", awaited::dropped),
    ("awaited-alone", awaited::alone),
    ("awaited-foreign-reaper", awaited::foreign_reaper),
    ("awaited-runtime-gone", awaited::runtime_gone),
    ("awaited-unwatched", awaited::unwatched),
    ("awaited-refused", awaited::refused),
    ("ids-closed", ids::closed_to_the_new_user),
    ("ids-groups", ids::without_the_hosts_groups),
    ("ids-overlap", ids::noted_once),
    ("ids-own-drop", ids::own_drop),
    ("ids-own-zero", ids::own_zero_kept),
    ("ids-restored", ids::restored_while_others_go_on),
    ("ids-forked-amid", ids::forked_amid),
    ("ids-asked-for", ids::asked_for_meanwhile),
    ("ids-refused-meanwhile", ids::refused_meanwhile),
    ("ids-other-credentials", ids::closed_for_other_credentials),
    ("maps-forked", maps::forked),
    ("maps-meanwhile", maps::meanwhile),
    ("maps-host", maps::host),
    ("maps-host-stopped", maps::host_stopped),
    ("maps-host-killed", maps::host_killed),
    ("maps-child-stopped", maps::child_stopped),
    ("death-thread-ends", death::thread_ends),
    ("death-host-gone", death::host_gone),
    ("death-held-host", death::held_host),
    ("death-process-ends", death::process_ends),
    ("death-sandbox-ends", death::sandbox_ends),
    ("death-sandbox-host", death::sandbox_host),
    ("death-host", death::host),
    ("death-fork-copy", death::fork_copy),
    ("death-blocks", death::blocks),
    ("death-unshared-pids", death::unshared_pids),
    ("death-unseen-parent", death::unseen_parent),
    ("death-ids-change", death::ids_change),
    ("death-many", death::many),
    ("death-own-table", death::own_table),
    ("death-main-thread-gone", death::main_thread_gone),
    ("zygote-owner-unchanged", zygote_owner::unchanged),
    ("zygote-owner-dropped-ids", zygote_owner::dropped_ids),
    ("zygote-owner-dropped-capability", zygote_owner::dropped_capability),
    ("zygote-lost-memory", zygote_owner::lost_memory),
    ("zygote-many-in-flight", zygote_owner::many_in_flight),
    ("zygote-owner-another-process", zygote_owner::another_process),
    ("zygote-owner-foreign-numbers", zygote_owner::foreign_numbers),
    ("record-locks", locks::kept),
    ("record-locks-host", locks::host),
    ("record-locks-after", locks::after),
    ("record-locks-look", locks::expect_lock),
    ("bounds-misses", bounds::misses),
    ("bounds-signals-after-the-end", bounds::signals_after_the_end),
    ("bounds-failed-maps", bounds::failed_maps),
    ("lines-status-kept", lines::status_is_kept),
    ("attributes", attributes::changed),
    ("strangers-maps", strangers::maps),
    ("strangers-pipes", strangers::pipes),
    ("creator-shows", creator::shows),
    ("creator-own-rights", creator::own_rights),
    ("creator-equal-filters", creator::equal_filters),
    ("creator-own-ids", creator::own_ids),
    ("creator-too-many", creator::too_many),
    ("creator-not-held-up", creator::not_held_up),
    ("creator-in-a-host-without-proc", creator::in_a_host_without_proc),
    ("creator-without-proc", creator::without_proc),
    ("set-thousands", set::thousands),
    ("set-odd", set::odd),
    ("set-keys", set::keys),
    ("set-refused", set::refused),
    ("set-exhausted", set::exhausted),
    ("set-dropped", set::dropped),
    ("set-storm", set::storm),
    ("set-traced", set::traced),
    ("captured-traced", set::captured_traced),
    ("set-readable", set::readable),
    ("set-copy", set::copy),
    ("set-memory", set::memory),
    ("changes", ends::changes),
    ("changes-taken", ends::changes_taken),
    ("cores", ends::cores),
    ("groups", ends::groups),
    ("groups-before-6.9", ends::groups_of_old),
    ("terminated", ends::terminated),
    ("terminated-groups", ends::terminated_groups),
    ("dropped-by-a-copy", ends::dropped_by_a_copy),
    ("killed-on-drop", ends::killed_on_drop),
    ("kill-refused", ends::kill_refused),
    ("wait-interrupted", ends::interrupted),
    ("holding-ends", holding::ends),
    ("holding-dropped", holding::dropped),
    ("holding-input", holding::input),
    ("holding-others", holding::others),
    ("holding-owned", holding::owned),
    ("capture-child", capture::child),
    ("capture-input", capture::input),
    ("capture-streams", capture::streams),
    ("capture-control", capture::control),
    ("capture-limits", capture::limits),
    ("capture-times", capture::times),
    ("capture-no-time", capture::no_time),
    ("capture-held-open", capture::held_open),
    ("capture-fails", capture::fails),
    ("capture-merged", capture::merged),
    ("capture-memory-files", capture::memory_files),
    ("capture-refused", capture_alone::refused),
    ("pipes-again", capture_alone::pipes_again),
    ("capture-few-fds", capture_alone::few_fds),
    ("capture-short-files", capture_alone::short_files),
    ("capture-signals", capture_alone::signals),
    ("capture-sigchld-ignored", capture_alone::sigchld_ignored),
    ("capture-foreign-reaper", capture_alone::foreign_reaper),
    ("pre-exec-place", launchers::pre_exec_place),
    ("pre-exec-ends", launchers::pre_exec_ends),
    ("pre-exec-odd", launchers::pre_exec_odd),
    ("pre-exec-allocates", launchers::pre_exec_allocates),
    ("pre-exec-refused", launchers::refused),
    ("pre-exec-panic-stays", launchers::panic_stays),
    ("first-launch-is-init", launchers::init_of_a_namespace),
    ("fork-killed-at-once", launchers::killed_at_once),
    ("fork-killed-early", launchers::killed_early),
    ("fork-failed-is-visible", launchers::failed_is_visible),
    ("fork-unwatched", launchers::unwatched),
    ("pipelines", pipeline::pipelines),
    ("pipeline-often", pipeline::often),
    ("lines", pipeline::lines),
    ("zygote-basics", zygote::basics),
    ("zygote-calls", zygote::calls),
    ("zygote-follows", zygote::follows),
    ("zygote-scheduling", zygote_scheduling::scheduling),
    ("zygote-groups", zygote_bounds::groups),
    ("zygote-cgroups", zygote_bounds::cgroups),
    ("zygote-own-cgroup", zygote_bounds::own_cgroup),
    ("zygote-thread-cgroup", zygote_bounds::thread_cgroup),
    ("zygote-deep-cgroup", zygote_bounds::deep_cgroup),
    ("zygote-killed", zygote::killed),
    ("zygote-kill-storm", zygote::kill_storm),
    ("zygote-held", zygote::held),
    ("zygote-stopped", zygote::stopped),
    ("zygote-beside-ids", zygote_odd::beside_ids),
    ("zygote-large", zygote::large),
    ("zygote-leaks", zygote::leaks),
    ("zygote-landlock", zygote_odd::landlock),
    ("zygote-hidden", zygote_odd::hidden),
    ("zygote-equal-filters", zygote_odd::equal_filters),
    ("zygote-common-filters", zygote_odd::common_filters),
    ("zygote-common-filters-host", zygote_odd::common_filters_host),
    ("zygote-asks", zygote_odd::asks),
    ("zygote-lost", zygote_odd::lost),
    ("zygote-user-namespace", zygote_odd::user_namespace),
    ("zygote-dropped-before-exec", zygote_odd::dropped_before_exec),
    ("zygote-pid-namespace", zygote_odd::pid_namespace),
    ("zygote-fork-copy", zygote::fork_copy),
    ("zygote-ends", zygote::ends),
    ("zygote-refused", zygote::refused),
    ("zygote-plain", zygote::plain),
    ("zygote-visible", zygote::visible),
    ("sigpipe", sigpipe::raised_never),
    ("exec", exec::exec),
    ("exec-settings", exec::in_first_thread),
    ("exec-from-thread", exec::in_other_thread),
    ("exec-reported", reported::reported),
    ("exec-beside-open", exec::beside_open),
    ("exec-number-reserved", exec::number_reserved),
    ("exec-number-stays-reserved", exec::number_stays_reserved),
    ("exec-mask", exec::mask),
    ("exec-fails", exec::fails),
    ("scripts", exec::scripts),
    ("std-streams", exec::streams),
    ("killed-while-protected", unusual::killed_while_protected),
    ("deadline", unusual::deadline),
];

fn main() -> ExitCode {
    forkless::zygote::serve_if_asked(&zygote::functions());
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    launched::choose(&mut args);
    let Some((_, run)) = args.first().and_then(|name| SCENARIOS.iter().find(|(known, _)| known == name)) else {
        let names: Vec<&str> = SCENARIOS.iter().map(|(name, _)| *name).collect();
        eprintln!("usage: scenario NAME [ARGS…]; names: {}", names.join(" "));
        return ExitCode::from(2);
    };
    // Closes descriptors that the caller of the tests has left open: some scenarios count descriptors, some use up the
    // table.
    // SAFETY: before any descriptor was opened here.
    unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
    crowd::choose(&mut args);
    run(&args[1..]);
    ExitCode::SUCCESS
}

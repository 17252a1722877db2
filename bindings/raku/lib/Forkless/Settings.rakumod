# Settings of the child that take one value, for :settings of run, shell, spawn and start: docs/settings.md. It is loaded when it is first
# used.
unit module Forkless::Settings;

use NativeCall;
use Forkless::Launch;
use Forkless::Native;

# By their names. `cargo xtask settings` writes what stands between the marks, from the library's table of settings.
my %setters =
    # settings: begin
    nice => (sub forkless_command_nice(size_t, int32 --> int32) is native(&library) {*}),
    timer-slack => (sub forkless_command_timer_slack(size_t, uint64 --> int32) is native(&library) {*}),
    personality => (sub forkless_command_personality(size_t, uint32 --> int32) is native(&library) {*}),
    oom-score-adj => (sub forkless_command_oom_score_adj(size_t, int32 --> int32) is native(&library) {*}),
    memory-policy => (sub forkless_command_memory_policy(size_t, Blob --> int32) is native(&library) {*}),
    memory-deny-write-execute => (sub forkless_command_memory_deny_write_execute(size_t, int32 --> int32) is native(&library) {*}),
    chroot => (sub forkless_command_chroot(size_t, Blob --> int32) is native(&library) {*}),
    umask => (sub forkless_command_umask(size_t, uint32 --> int32) is native(&library) {*}),
    controlling-terminal => (sub forkless_command_controlling_terminal(size_t, int32 --> int32) is native(&library) {*}),
    foreground => (sub forkless_command_foreground(size_t, int32 --> int32) is native(&library) {*}),
    no-new-privs => (sub forkless_command_no_new_privs(size_t, int32 --> int32) is native(&library) {*}),
    parent-death-signal => (sub forkless_command_parent_death_signal(size_t, int32 --> int32) is native(&library) {*}),
    thread-death-signal => (sub forkless_command_thread_death_signal(size_t, int32 --> int32) is native(&library) {*}),
    hostname => (sub forkless_command_hostname(size_t, Blob --> int32) is native(&library) {*}),
    pivot-root => (sub forkless_command_pivot_root(size_t, Blob --> int32) is native(&library) {*}),
    cgroup => (sub forkless_command_cgroup(size_t, int32 --> int32) is native(&library) {*}),
    memory-max => (sub forkless_command_memory_max(size_t, Blob --> int32) is native(&library) {*}),
    tasks-max => (sub forkless_command_tasks_max(size_t, Blob --> int32) is native(&library) {*}),
    cpu-max => (sub forkless_command_cpu_max(size_t, Blob --> int32) is native(&library) {*}),
    io-max => (sub forkless_command_io_max(size_t, Blob --> int32) is native(&library) {*}),
    cgroup-parent => (sub forkless_command_cgroup_parent(size_t, Blob --> int32) is native(&library) {*}),
    bounding-set => (sub forkless_command_bounding_set(size_t, uint64 --> int32) is native(&library) {*}),
    permitted => (sub forkless_command_permitted(size_t, uint64 --> int32) is native(&library) {*}),
    effective => (sub forkless_command_effective(size_t, uint64 --> int32) is native(&library) {*}),
    inheritable => (sub forkless_command_inheritable(size_t, uint64 --> int32) is native(&library) {*}),
    ambient => (sub forkless_command_ambient(size_t, uint64 --> int32) is native(&library) {*}),
    securebits => (sub forkless_command_securebits(size_t, uint32 --> int32) is native(&library) {*}),
    kill-tree => (sub forkless_command_kill_tree(size_t, int32 --> int32) is native(&library) {*}),
    landlock => (sub forkless_command_landlock(size_t, int32 --> int32) is native(&library) {*}),
    # settings: end
;

# Sets them in a command. What a value means to the kernel is checked at the launch.
sub set-all($command, %settings --> Nil) is export {
    for %settings.kv -> $name, $value {
        my &set = %setters{$name.trans('_' => '-')} // die "no such setting: $name";
        my $text = &set.signature.params[1].type ~~ Blob;
        my $given = do given $value {
            when Bool { .Int }
            when IO::Handle:D { .native-descriptor }
            when $text { c-string($_) }
            # Signals are an enumeration.
            when Numeric:D { .Int }
            default { die "the setting $name is a number, not {.raku}" }
        };
        die "the setting $name cannot be {$value.raku}" if set($command, $given) < 0;
    }
}

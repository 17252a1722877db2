# Settings of the child, for :settings of run, shell, spawn, start and capture: docs/settings.md. It is loaded when it is first used.
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

# Those that take several values, or words.
my %others =
    best-effort => (sub forkless_command_best_effort(size_t, int32 --> int32) is native(&library) {*}),
    bind => (sub forkless_command_bind(size_t, Blob, Blob --> int32) is native(&library) {*}),
    bind-read-only => (sub forkless_command_bind_read_only(size_t, Blob, Blob --> int32) is native(&library) {*}),
    cpu-affinity => (sub forkless_command_cpu_affinity(size_t, Blob, size_t --> int32) is native(&library) {*}),
    devices => (sub forkless_command_devices(size_t, Blob --> int32) is native(&library) {*}),
    fd => &forkless_command_fd,
    gid => (sub forkless_command_gid(size_t, uint32 --> int32) is native(&library) {*}),
    group => (sub forkless_command_group(size_t, Blob --> int32) is native(&library) {*}),
    groups => (sub forkless_command_groups(size_t, Blob, size_t --> int32) is native(&library) {*}),
    io-priority => (sub forkless_command_io_priority(size_t, int32, int32 --> int32) is native(&library) {*}),
    join => (sub forkless_command_join(size_t, uint64, int32 --> int32) is native(&library) {*}),
    launcher => (sub forkless_command_launcher(size_t, int32 --> int32) is native(&library) {*}),
    map-gid => (sub forkless_command_map_gid(size_t, uint32, uint32, uint32 --> int32) is native(&library) {*}),
    map-uid => (sub forkless_command_map_uid(size_t, uint32, uint32, uint32 --> int32) is native(&library) {*}),
    proc => (sub forkless_command_proc(size_t, Blob --> int32) is native(&library) {*}),
    process-group => (sub forkless_command_process_group(size_t, int32 --> int32) is native(&library) {*}),
    read-only => (sub forkless_command_read_only(size_t, Blob --> int32) is native(&library) {*}),
    rlimit => (sub forkless_command_rlimit(size_t, int32, uint64, uint64 --> int32) is native(&library) {*}),
    scheduler => (sub forkless_command_scheduler(size_t, int32, int32 --> int32) is native(&library) {*}),
    setsid => (sub forkless_command_setsid(size_t, int32 --> int32) is native(&library) {*}),
    signal-block => (sub forkless_command_signal_block(size_t, int32 --> int32) is native(&library) {*}),
    signal-default => &forkless_command_signal_default,
    signal-ignore => (sub forkless_command_signal_ignore(size_t, int32 --> int32) is native(&library) {*}),
    tmpfs => (sub forkless_command_tmpfs(size_t, Blob, Blob --> int32) is native(&library) {*}),
    uid => (sub forkless_command_uid(size_t, uint32 --> int32) is native(&library) {*}),
    unshare => (sub forkless_command_unshare(size_t, uint64 --> int32) is native(&library) {*}),
    user => (sub forkless_command_user(size_t, Blob --> int32) is native(&library) {*}),
;

# Words for the numbers that these take first.
my %namespaces = time => 0x80, mount => 0x20000, cgroup => 0x2000000, uts => 0x4000000, ipc => 0x8000000, user => 0x10000000,
    pid => 0x20000000, network => 0x40000000;
my %words =
    unshare => %namespaces,
    join => %namespaces,
    rlimit => <cpu fsize data stack core rss nproc nofile memlock as locks sigpending msgqueue nice rtprio rttime>.antipairs.Hash,
    launcher => { clone => 0, fork => 1, posix_spawn => 2 },
    scheduler => { other => 0, fifo => 1, rr => 2, batch => 3, idle => 5 },
    io-priority => { realtime => 1, best_effort => 2, idle => 3 };

# Numbers outside would be taken for others.
my %ranges = int32 => -2**31 .. 2**31 - 1, uint32 => 0 .. 2**32 - 1, uint64 => 0 .. 2**64 - 1;

# The calls that a value means, each with its arguments. (a, b) is one call, or two of a setting that takes one value; ((a, b), (c, d)) are
# two, as { a => b, c => d }.
sub calls($name, $value, $count) {
    given $value {
        # An array of numbers, and their number.
        when $name eq 'cpu-affinity' | 'groups' { ((buf32.new(.list.map(&whole)), .elems),) }
        when Associative { .pairs.map({ (.key, |.value) }) }
        when Positional | Seq { $count == 1 ?? .map({ ($_,) }) !! .[0] ~~ Positional ?? .list !! (.list,) }
        default { (($_,),) }
    }
}

sub whole($number) {
    $number ~~ Numeric:D && $number == $number.Int ?? $number.Int !! die "expected a whole number, not {$number.raku}"
}

sub argument($given, $type, %words) {
    given $given {
        when Blob:D { $_ }
        when Bool { .Int }
        when IO::Handle:D { .native-descriptor }
        when $type ~~ Blob { c-string($_) }
        default {
            # Signals are an enumeration.
            my $number = $_ !~~ Str:D ?? whole($_) !! %words{$_} // (/^ \d+ $/ ?? .Int !! die "no such word: $_");
            $number ~~ %ranges{$type.^name} ?? $number !! die "out of range: $number"
        }
    }
}

# Sets them in a command, those of a list of pairs in its order. What a value means to the kernel is checked at the launch.
sub set-all($command, $settings --> Nil) is export {
    my @pairs = $settings ~~ Associative ?? $settings.pairs.sort(*.key) !! $settings.list;
    for @pairs -> (:key($given), :$value) {
        my $name = $given.trans('_' => '-');
        my &set = %setters{$name} // %others{$name} // die "no such setting: $given";
        my @types = &set.signature.params[1..*].map(*.type);
        for calls($name, $value, +@types) -> @call {
            CATCH { default { die "the setting $given cannot be {(@call == 1 ?? @call[0] !! @call).raku}: {.message}" } }
            die "it takes {+@types} values" if @call != @types;
            my @arguments = @call.kv.map(-> $n, $one { argument($one, @types[$n], $n ?? {} !! %words{$name} // {}) });
            die 'the library refuses it' if set($command, |@arguments) < 0;
        }
    }
}

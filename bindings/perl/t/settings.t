use v5.16;
use warnings;
use Test::More;

use Forkless;
use Forkless::Command;

# Every setter of the header is a setting, and every setting is a method.
my ($include) = map { /-I(\S+)/ ? $1 : () } do {
    open my $makefile, '<', 'Makefile' or plan skip_all => 'no Makefile to tell where the header is';
    grep { /^INC = / } readline $makefile;
};
open my $header, '<', "$include/forkless.h" or plan skip_all => "no header at $include";
my $text  = do { local $/; readline $header };
my %named = map { $_ => 1 } $text =~ /\bforkless_command_(\w+)\(/g;

# Not settings: functions that create, free or run a command, or that only C can use (for terminals use IO::Pty and controlling_terminal).
delete @named{qw(new new_argv free spawn spawn_line launch status prepare capture pre_exec call warm sandbox pty)};
my %ours = map { $_ => 1 } Forkless::settings();
is_deeply([sort keys %ours], [sort keys %named], 'the settings are those of the header');
cmp_ok(scalar keys %ours, '>', 70, '… and none is missing');
ok(Forkless::Command->can($_), "$_ is a method") for sort keys %ours;
ok(Forkless::Command->can($_), "$_ is a method") for qw(call warm sandbox);

# Each setting with valid arguments. Its effect is tested with the library.
my %good = (
    or_else => ['sh'], program_fd => [0], arg => ['x'], args => [['x', 'y']], arg0 => ['x'], env => ['A', 1], env_remove => ['A'],
    env_clear => [], envs => [['A=1']], current_dir => ['/'], current_dir_fd => [0], chroot => ['/'], fd => [5, \*STDIN],
    fd_inherit => [0], fd_null => [1], fd_pipe => [1], fd_socketpair => [9], fd_dup => [2, 1], fd_open => [0, '/dev/null', 0, 0],
    inherit_all => [1], setsid => [1], process_group => [0], controlling_terminal => [0], foreground => [0],
    signal_default => ['INT'], signal_ignore => ['SIGINT'], signal_inherit => [2], signal_block => ['USR1'],
    inherit_signal_mask => [1], pidfd => [1], kill_on_free => [1], keep_record_locks => [1], autoreap => [1], pidfd_autokill => [1], retry_busy => [10], best_effort => [21], launcher => ['fork'],
    scripts_by_shell => [1],
    uid => [0], gid => [0], groups => [[0, 1]], user => ['root'], group => ['root'], umask => [022], rlimit => ['AS', 1 << 40, 1 << 40],
    scheduler => ['other', 0], cpu_affinity => [[0]], io_priority => ['best_effort', 4],
    no_new_privs => [1], kill_tree => [1], memory_max => ['512M'], tasks_max => [100], cpu_max => [1.5], io_max => ['8:0 rbps=1'], cgroup_parent => ['/x'],
    parent_death_signal => ['KILL'], thread_death_signal => ['KILL'],
    unshare => ['user'], join => ['user', 0], map_uid => [0, 0, 1], map_gid => [0, 0, 1], hostname => ['x'],
    mount => [undef, '/x', 'tmpfs', 0, undef], bind => ['/', '/x'], bind_read_only => ['/', '/x'], read_only => ['/x'],
    mount_attributes => ['/x', 1, 0], file_system => ['tmpfs', ['size=1m'], 0, '/x'], attach_mount => [0, '/x'],
    overlay => [['/a', '/b'], undef, undef, '/x'], unmount => ['/x'], make_dir => ['/x', 0700], make_symlink => ['/a', '/b'],
    devices => ['/dev'], tmpfs => ['/tmp', 'size=1m'], proc => ['/proc'], pivot_root => ['/x'], cgroup => [0],
    bounding_set => [0], permitted => [0], effective => [0], inheritable => [0], ambient => [0], securebits => [0], landlock => [0],
    seccomp => [pack 'SCCL', 6, 0, 0, 0x7fff0000], hand_back => [0],
);
# Those of the library's table of settings, with the value that it gives.
open my $table, '<', 'settings.h' or die "settings.h: $!";
while (my $row = readline $table) {
    $good{$1} //= [$2] if $row =~ m{ONE\((\w+), "\w"\), /\* (\S+) \*/};
}
is_deeply([sort keys %good], [sort keys %ours], 'each setting is tried');
for my $name (sort keys %good) {
    my $command = Forkless->new(cmd => ['true']);
    is($command->set($name => @{ $good{$name} }), $command, "$name accepts its arguments") or diag $Forkless::error;
    ok(!eval { $command->set($name => @{ $good{$name} }, 1); 1 }, '… and refuses one more');
}

# End-to-end tests of a few settings.
my $seen = Forkless->new(
    cmd          => ['sh', '-c', 'id -u; uname -n; ulimit -n; grep NoNewPrivs /proc/self/status'],
    unshare      => ['user', 'uts'], map_uid => [0, $>, 1], hostname => 'elsewhere', rlimit => ['NOFILE', 99, 99],
    no_new_privs => 1,
)->capture;
SKIP: {
    if (!$seen) {
        diag("SKIPPED: a user namespace because $Forkless::error");
        skip 'no user namespace', 1;
    }
    is($seen->stdout, "0\nelsewhere\n99\nNoNewPrivs:\t1\n", 'a namespace, a host name, a limit and no_new_privs take effect');
}
SKIP: {
    my @tree = (cmd => ['sh', '-c', '(setsid sleep 50 & echo $!); sleep 50; sleep 50'], kill_tree => 1);
    my $tree = Forkless->new(@tree);
    my $ended = $tree->capture(timeout => 2);
    if (!$ended) {
        like($Forkless::error, qr/Landlock/, 'kill_tree needs Landlock');
        diag("SKIPPED: $Forkless::error");
        skip "no kill_tree", 1;
    }
    my $runs = sub { open my $file, '<', "/proc/$_[0]/status" or return 0; return !grep {/^State:\sZ/} <$file> };
    chomp(my $left = $ended->stdout);
    ok($ended->timed_out && $left =~ /^\d+\z/ && !$runs->($left), 'kill_tree ends all that was started');
    my $child = Forkless->new(@tree, stdout => 'pipe')->spawn;
    chomp($left = readline $child->stdout);
    ok($runs->($left) && $child->kill && $child->wait && !$runs->($left), 'so does kill');
}
my $call = Forkless->new(cmd => ['sh', '-c', 'nice'])->call(141, undef, 0, 0, 5);
SKIP: {
    require Config;
    skip 'the number is that of x86-64', 1 if $Config::Config{archname} !~ /x86_64/;
    is($call->capture->stdout, "5\n", 'call makes a system call (setpriority)');
}

done_testing;

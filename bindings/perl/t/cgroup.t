use v5.16;
use warnings;
use Errno qw(EINVAL ENOENT);
use File::Basename qw(basename);
use Test::More;

use Forkless;
use Forkless::Cgroup;
use Forkless::Sandbox;

my ($parent) = grep { -e "$_/cgroup.procs" && -w $_ } qw(/sys/fs/cgroup /sys/fs/cgroup/unified);
if (!defined $parent) {
    print "SKIPPED: cgroups, because no cgroup of version 2 is writable here\n";
    plan skip_all => 'no cgroup';
}

my $group = Forkless::Cgroup->new(parent => $parent, raise => 1);
my $name  = basename($group->path);
my $seen  = Forkless->new(cmd => ['cat', '/proc/self/cgroup'], cgroup => $group)->capture;
like($seen->stdout, qr{/\Q$name\E$}m, 'a program starts in it');
my $polite = Forkless->new(cmd => ['sleep', '600'])->cgroup($group)->spawn;
is($group->counter('cgroup.events', 'populated'), 1, 'it has a process');
is($group->wait_empty(0.01), 0, 'which does not end');
is($group->terminate(60), 1, 'but if it is asked to');
is($polite->wait & 127, 15, '… by SIGTERM');
my $stubborn = Forkless->new(cmd => ['sh', '-c', 'trap "" TERM; echo; setsid sleep 600 & while :; do sleep 1; done'], cgroup => $group, stdout => 'pipe')->spawn;
readline $stubborn->stdout;
my $left = Forkless->new(cmd => ['sleep', '600'], cgroup => $group)->spawn;
is($group->terminate(0.05), 0, 'one that does not is killed');
is($stubborn->wait & 127, 9, '… by SIGKILL');
ok($group->end, 'its end');
is($left->wait & 127, 15, '… comes after that of all processes');
ok(!-e "$parent/$name", '… and it is removed');
ok(!eval { $group->kill; 1 }, 'it is not used any more');

for my $limit ([memory_max => '64M', 'memory.max', 64 << 20], [tasks_max => 20, 'pids.max', 20], [cpu_max => 1.5, 'cpu.max', '150000 100000']) {
    my ($option, $value, $file, $written) = @$limit;
    my $limited = Forkless::Cgroup->new(parent => $parent, $option => $value);
    if (!$limited) {
        like($Forkless::error, qr/no controller/, "no $option here");
        print "SKIPPED: the limit $option, because $Forkless::error\n";
        next;
    }
    is($limited->get($file), $written, $option);
    ok($limited->end, 'removed');
}

# A launch with a cgroup of its own. What it leaves holds the pipe.
my $groups = sub { scalar(my @found = glob "$parent/forkless-$$*") };
my @leaves = (cmd => ['sh', '-c', 'setsid sleep 600 & echo done'], cgroup_parent => $parent);
my $output = Forkless->new(@leaves)->capture;
is($output->stdout, "done\n", 'the output of a launch with a cgroup');
is_deeply($output->limit_events, { oom_kills => 0, memory_max => 0, tasks_max => 0 }, '… and its limits');
my $child = Forkless->new(@leaves, stdout => 'pipe')->spawn;
is($child->limit_events, undef, 'none before its end');
is($child->wait, 0, 'its end');
is_deeply($child->limit_events, { oom_kills => 0, memory_max => 0, tasks_max => 0 }, 'then there are');
is($groups->(), 0, 'nothing is left');
my $killed = Forkless->new(cmd => ['sh', '-c', 'setsid sleep 600 & sleep 600; sleep 600'], cgroup_parent => $parent)->spawn;
is($groups->(), 1, 'it has a cgroup');
$killed->kill('KILL');
is($killed->wait, 9, 'a kill');
is($groups->(), 0, '… ends all');
my $inside = Forkless::Sandbox->new(mode => 'landlock', cgroup_parent => $parent);
if ($inside && $inside->check) {
    $output = Forkless->new(cmd => ['sh', '-c', 'setsid sleep 600 & echo done'], current_dir => '/', sandbox => $inside)->capture;
    is($output && $output->stdout, "done\n", 'as a part of a sandbox');
    is($groups->(), 0, '… nothing is left');
}
ok(!Forkless::Sandbox->new(tasks_max => 'many'), 'a limit of a sandbox that is none');
like($Forkless::error, qr/tasks_max must be/, '… is an error');
ok(!Forkless->new(cmd => ['true'], memory_max => 'lots')->spawn, 'a limit that is none');
like($Forkless::error, qr/memory_max must be/, '… is an error');

ok(!Forkless::Cgroup->new(parent => '/no/such'), 'no parent');
is($Forkless::error->errno, ENOENT, '… is an error');
ok(!Forkless::Cgroup->new(parent => '/tmp'), 'a parent that is no cgroup');
is($Forkless::error->errno, EINVAL, '… is an error');
for my $wrong ([memory => 1], [cpu_max => 'x']) {
    ok(!eval { Forkless::Cgroup->new(parent => $parent, @$wrong); 1 }, "refused: @$wrong");
}
done_testing;

# Many children, few threads and descriptors, and other users of the same process's children.
use Test;
use nqp;
use Forkless;
use Forkless::Proc::Async;

sub within($promise) {
    await Promise.anyof($promise, Promise.in(300));
    $promise.status ~~ Planned ?? die('not done within 300 seconds') !! $promise.result
}

sub threads { '/proc/self/status'.IO.lines.first(*.starts-with('Threads:')).words[1].Int }
sub descriptors { '/proc/self/fd'.IO.dir.elems }
# Another process may have got the number since.
sub is-gone($pid) {
    my $stat = try "/proc/$pid/stat".IO.slurp;
    !$stat.defined || $stat.comb(/<-[)]>+ $/)[0].words[1].Int != $*PID
}

# Waits for a state.
sub eventually(&state, $what) {
    for ^600 {
        return pass $what if state();
        sleep 0.1;
    }
    flunk $what
}

my $limit = '/proc/self/limits'.IO.lines.first(*.starts-with('Max open files')).words[3];
$limit = $limit eq 'unlimited' ?? 1_000_000 !! $limit.Int;
my $count = 1_000 min ($limit - 200);

subtest "$count children at the same time" => {
    # Starts the thread of all children, and those of the scheduler.
    await (^8).map: { Forkless::Proc::Async.new('true').start };
    my ($threads, $descriptors) = threads(), descriptors();
    my @all = (^$count).map: { Forkless::Proc::Async.new('sleep', '10000') };
    my @ends = @all.map(*.start);
    my @pids = @all.map({ within(.pid) });
    is @pids.unique.elems, $count, 'each has a pid';
    ok threads() <= $threads + 4, 'no thread for each';
    ok descriptors() <= $descriptors + $count + 8, 'one descriptor for each';
    .kill(SIGTERM) for @all;
    is-deeply @ends.map({ within($_).signal }).unique.List, (15,), 'all ends are seen';
    is @pids.grep({ !is-gone($_) }).elems, 0, 'no zombies';
    ok descriptors() <= $descriptors + 8, 'no descriptor is left';
    lives-ok { .kill(SIGTERM) for @all }, 'kill after the end';
}

subtest 'beside Proc::Async' => {
    my @ends = (^60).map: -> $n {
        my $class = $n %% 2 ?? Proc::Async !! Forkless::Proc::Async;
        my $proc = $class.new('sh', '-c', "exit $n");
        $proc.stdout.tap;
        $proc.start
    };
    is-deeply @ends.map({ within($_).exitcode }).List, (^60).List, 'each sees the ends of its own children';
}

subtest 'handles that are collected while their children run' => {
    sub begin-run { (^50).map({ run('sh', '-c', 'echo a', :out).pid }).List }
    my @pids = |begin-run();
    eventually { nqp::force_gc(); Forkless::Proc::Async.new('true').start.result; so all(@pids.map(&is-gone)) }, 'run: no zombies';
    nqp::force_gc();
    my $proc = Forkless::Proc::Async.new('sleep', '0.2');
    my $end = $proc.start;
    $proc = Nil;
    nqp::force_gc() for ^3;
    is within($end).exitcode, 0, 'Proc::Async: the promise is kept';
}

subtest 'no descriptor is left' => {
    my $program = q:to/END/;
        use Forkless::Proc::Async;
        use X::Forkless;
        my (@all, $why);
        Forkless::Proc::Async.new('true').start.result;
        for ^200 {
            my $proc = Forkless::Proc::Async.new('sleep', '1000');
            my $end = $proc.start;
            try await $proc.ready;
            if $! { $why = $!; $end.cause; last }
            @all.push($proc => $end);
        }
        say 'refused: ', $why ~~ X::Forkless && $why.errno == 24;
        .key.kill(SIGKILL) for @all;
        say 'ended: ', so all(@all.map({ .value.result.signal == 9 }));
        say 'again: ', Forkless::Proc::Async.new('true').start.result.exitcode;
        END
    my $file = $*TMPDIR.add("forkless-many-{$*PID}.raku");
    LEAVE $file.unlink;
    $file.spurt($program);
    my $lib = $?FILE.IO.parent(2).add('lib');
    my $proc = run 'sh', '-c', 'ulimit -n 60; exec "$@"', 'sh', $*EXECUTABLE, "-I$lib", ~$file, :out;
    is $proc.out.slurp(:close), "refused: True\nended: True\nagain: 0\n", 'the launch is refused, and later ones are not';
}

subtest 'many launches from many threads' => {
    my @all = (^16).map: -> $n { start { (^25).map({ run('sh', '-c', "exit $n").exitcode }).unique.List } };
    is-deeply @all.map({ within($_) }).List, (^16).map({ ($_,) }).List, 'each has its own status';
}

done-testing;

# Captures: output, input, limits of time and size.
use Test;
use Forkless::Capture;
use X::Forkless;

my &open-ones = { '/proc/self/fd'.IO.dir.elems };
my $both = capture 'sh', '-c', 'echo out; echo err >&2; exit 3';
is ($both.out, $both.err, $both.exitcode, $both.signal), ("out\n", "err\n", 3, 0), 'both streams and the status';
nok $both || $both.timed-out || $both.held-open, 'the program failed, in time';
is capture('sh', '-c', 'echo out; echo err >&2', :merge).out, "out\nerr\n", 'merged';
is capture('cat').out, '', 'no input';
is capture('cat', input => 'é').out, 'é', 'input';
is capture('cat', input => Blob.new(0, 255), :bin).out, Blob.new(0, 255), 'bytes';
ok capture('true', input => 'x' x 1_000_000), 'input that is not read';
my $much = 'x' x 1_000_000;
is capture('cat', input => $much).out, $much, 'more than a pipe holds';
is capture('printf', '\377').out.encode('utf8-c8'), Blob.new(255), 'bytes that are not UTF-8';
is capture('sh', '-c', 'echo $0 $X; pwd', :arg0<name>, :cwd</>, env => { :1X, PATH => %*ENV<PATH> }).out, "name 1\n/\n", 'as run';
is capture('nice', settings => { :5nice }).out, "5\n", 'settings';
nok capture('true').limit-events, 'no limits';
with </sys/fs/cgroup /sys/fs/cgroup/unified>.first({ "$_/cgroup.procs".IO.w }) -> $parent {
    my $made = capture 'true', settings => { cgroup-parent => $parent };
    is-deeply $made.limit-events, { :0oom-kills, :0memory-max, :0tasks-max }, 'limits that were not reached';
}
else {
    note 'SKIPPED: limit-events, because no cgroup of version 2 is writable here';
}

subtest 'a limit of time' => {
    my $late = capture 'sh', '-c', 'echo here; exec sleep 100', timeout => 0.3;
    ok $late.timed-out && !$late, 'the program is killed';
    is ($late.out, $late.signal), ("here\n", 9), 'with what it has written';
    my $asked = capture 'sh', '-c', 'trap "echo asked; exit 4" TERM; echo; sleep 100 & wait', timeout => 0.3, :term-signal(SIGTERM), :60grace,
        settings => { :kill-tree };
    is ($asked.out, $asked.exitcode), ("\nasked\n", 4), 'it is asked first';
    my $deaf = capture 'sh', '-c', 'trap "" TERM; while :; do sleep 0.1; done', timeout => 0.2, :term-signal<15>, grace => 0.2;
    is $deaf.signal, 9, 'and killed if it goes on';
    ok !capture('true', :60timeout).timed-out, 'a program that ends in time';
}

subtest 'a limit of size' => {
    my $cut = capture 'sh', '-c', 'head -c 1000000 /dev/zero; echo abc >&2', :10limit, :bin;
    is ($cut.out.elems, $cut.out-cut, $cut.err.elems, $cut.err-cut, $cut.exitcode), (10, 999_990, 4, 0, 0), 'the rest is discarded';
    my $killed = capture 'yes', :10limit, :kill-at-limit, :60timeout;
    is ($killed.out, $killed.signal), ("y\n" x 5, 9), 'or the program is killed';
    nok $killed.timed-out, 'which is no timeout';
    is capture('printf', 'abc', :3limit, :kill-at-limit).exitcode, 0, 'as much as the limit is not more';
}

subtest 'streams that another process has' => {
    my $line = 'sleep 100 & echo $!';
    for (timeout => 0.3), (linger => 0.1) -> $limit {
        my $held = capture 'sh', '-c', $line, |%($limit);
        ok $held.held-open && $held && !$held.timed-out, $limit.key;
        CORE::<&run>('kill', $held.out.trim);
    }
    my $before = open-ones;
    my $left = capture 'sh', '-c', $line, linger => 0.05;
    is open-ones, $before, 'their descriptors are closed';
    CORE::<&run>('kill', $left.out.trim);
    # F_SETPIPE_SZ: the program ends while most of its output is in the pipe.
    my $large = capture 'perl', '-e', 'fcntl(STDOUT, 1031, 1 << 20); syswrite(STDOUT, "x" x 1e6)', :0linger, :bin;
    is $large.out.elems, 1_000_000, 'what is in the pipe is read at the end';
    my $last = capture 'sh', '-c', 'trap "" TERM; head -c 60000 /dev/zero; exec sleep 100', timeout => 0.3, :0linger, :bin;
    is $last.out.elems, 60000, 'and at the limit of time';
    my $tree = capture 'sh', '-c', $line, :60timeout, settings => { :kill-tree };
    nok $tree.held-open, 'not with the tree';
}

throws-like { capture('/no/such') }, X::Forkless, errno => 2, 'a program that does not exist';
is (^20).race(:1batch, :8degree).map({ capture('sh', '-c', "sleep 0.0{$_ % 7}; echo $_").out.trim }).sort(+*), ^20, 'many at once';
my $before = open-ones;
capture('true', input => 'x') for ^20;
is open-ones, $before, 'no descriptor is left';

done-testing;

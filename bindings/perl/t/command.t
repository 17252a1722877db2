use v5.16;
use warnings;
use lib 't/lib';
use Errno qw(ENOENT EINVAL EBADF ENOTDIR ETIMEDOUT);
use File::Temp qw(tempdir tempfile);
use Look;
use Test::More;

use Forkless qw(capture);

sub shell {
    my ($line, @settings) = @_;
    return Forkless->new(cmd => ['sh', '-c', $line], @settings);
}

sub text {
    my ($line, @settings) = @_;
    my $output = shell($line, @settings)->capture or return "error: $!";
    return $output->stdout;
}

# ---- Settings ----
is(text('pwd', cwd => '/usr'), "/usr\n", 'cwd sets the working directory');
opendir my $opened, '/usr' or die;
is(text('pwd', cwd => $opened), "/usr\n", '… to that of a handle of opendir');
{ package Path; use overload '""' => sub { '/usr' } }
is(text('pwd', cwd => bless [], 'Path'), "/usr\n", '… to an object that is a path');
opendir my $directory, '/usr' or die;
is(text('echo $WORD', env => { WORD => 'x y' }), "x y\n", 'env sets a variable');
$ENV{GONE} = 1;
is(text('echo ${GONE-gone}', env => { GONE => undef }), "gone\n", 'undef in env removes a variable');
is(capture(['/usr/bin/env'])->stdout =~ /^GONE=1$/m, 1, 'other variables are inherited');
is(Forkless->new(cmd => ['/usr/bin/env'], environment => { A => 1, B => 2 })->capture->stdout, "A=1\nB=2\n", 'all of it');
is(text('umask', umask => 077), "0077\n", 'a setting takes a number');
is(text('ulimit -n', rlimit => ['NOFILE', 64, 64]), "64\n", 'a setting takes several arguments, the first by name');
is(text('ulimit -n; ulimit -c', rlimit => [['NOFILE', 64, 64], ['CORE', 0, 0]]), "64\n0\n", 'a setting is applied twice');
sub ignores { return hex((text('grep SigIgn /proc/self/status', @_) =~ /([0-9a-f]{16})/)[0]) }
is(ignores(signal_ignore => ['USR1', 12]) & 0xa00, 0xa00, 'signal_ignore takes names and numbers');
is(ignores() & 0xa80, 0, 'SIGFPE, which perl ignores, is reset to its default');
is(text('nice', nice => 17), "17\n", 'nice');
is(shell('nice')->nice(13)->umask(0)->capture->stdout, "13\n", 'settings are methods that can be chained');
like(shell('true', umask => 022)->prepare->steps, qr/umask/, 'steps lists umask');

# ---- Redirections ----
{
    my ($file, $name) = tempfile(UNLINK => 1);
    is(shell('echo to a file', stdout => ['>', $name])->status, 0, 'standard output is written to a file');
    is(shell('echo more', stdout => ['>>', $name])->status, 0, 'standard output is appended to a file');
    is(slurp($file), "to a file\nmore\n", '… the file has both lines');
    is(text('cat', stdin => ['<', $name]), "to a file\nmore\n", 'standard input is read from a file');
    is(text('cat', stdin => 'null'), '', 'null is an empty input');
    my $child = shell('echo out; echo err >&2', stdout => 'pipe', stderr => 'stdout')->spawn;
    is(slurp($child->stdout), "out\nerr\n", 'a pipe receives standard output and standard error');
    is($child->wait, 0, '… wait returns the status');
    $child = shell('cat >&2', stdin => 'pipe', stderr => 'pipe')->spawn;
    print { $child->stdin } "through\n";
    close $child->stdin;
    is(slurp($child->stderr), "through\n", 'a pipe is the standard input');
    is($child->wait, 0, '… wait returns the status');
    is(shell('cat', stdin => 'pipe', stdout => 'null')->spawn->wait, 0, 'wait closes standard input');
    pipe my $reads, my $writes;
    is(shell('echo five >&5', fds => { 5 => $writes })->status, 0, 'a handle is passed as another descriptor');
    close $writes;
    is(slurp($reads), "five\n", '… and the program writes to it');
    $child = shell('read x <&7; echo $x >&7', fds => { 7 => 'socketpair' })->spawn;
    my $socket = $child->socket(7);
    syswrite $socket, "both ways\n";
    is(scalar readline $socket, "both ways\n", 'a socket pair works in both directions');
    $child->wait;
}

# ---- Waiting and signals ----
{
    is(shell('exit 3')->status, 3 << 8, 'status returns the exit status');
    is($?, 3 << 8, '… and sets $?');
    is(shell('kill -9 $$')->status, 9, 'status returns the signal');
    $? = 0;
    is(Forkless->new(cmd => ['no-such-program'])->status, -1, 'status is -1 if the program cannot be started, as that of system');
    is($?, -1, '… and so is $?');
    $? = 0;
    is(capture(['no-such-program']), undef, 'capture returns undef then');
    is($?, -1, '… and $? is -1');
    $? = 0;
    # A failure may be known already when launch returns.
    my $failing = Forkless->new(cmd => ['true'], cwd => '/no/such')->launch;
    is($failing && $failing->wait, undef, 'launch or wait returns undef if a program was not executed');
    is($failing ? $? : -1, -1, '… and $? of wait is -1');
    my $child = shell('exec sleep 100')->spawn;
    is($child->wait(0), undef, 'wait(0) does not wait');
    is($! + 0, ETIMEDOUT, '… and sets ETIMEDOUT');
    is($child->wait(0.05), undef, 'wait returns at the timeout');
    ok(kill(0, $child->pid), 'pid is the pid of a process');
    ok($child->signal('TERM'), 'signal takes a name');
    is($child->wait, 15, '… and ends the child');
    is($child->wait, 15, 'wait returns the status a second time');
    is($child->status, 15, 'status');
    ok($child->usage->{max_rss_kib} > 0, 'usage');
    like($child->route, qr/clone/, 'route');
    $child = shell('trap "" TERM; echo; sleep 100', stdout => 'pipe', process_group => 0)->spawn;
    readline $child->stdout;
    is($child->terminate_group('TERM', 0.05), 9, 'terminate_group kills a group that ignores SIGTERM');
    $child = shell('exec sleep 100', pidfd => 0)->spawn;
    is($child->wait(0.05), undef, 'wait has a timeout without a pidfd');
    is($child->pidfd, undef, '… and pidfd returns undef');
    $child->kill;
    is($child->wait, 9, 'wait works without a pidfd');
    $child = shell('exec sleep 100')->spawn;
    $child->signal('STOP');
    is($child->wait_change, (19 << 8) | 0x7f, 'wait_change reports a stop');
    $child->signal('CONT');
    is($child->wait_change(10), 0xffff, '… and SIGCONT');
    is($child->terminate('INT'), 2, 'terminate takes a signal');
    $child = shell('exec sleep 100')->spawn;
    my $pid = $child->release;
    kill KILL => $pid;
    is(waitpid($pid, 0), $pid, 'the pid of a released child is for waitpid');
    ok(!eval { $child->kill; 1 }, '… and the object refuses further calls');
    $child = shell('exec sleep 100', kill_on_free => 1)->spawn;
    $pid = $child->pid;
    undef $child;
    select undef, undef, undef, 0.01 while Forkless::reap_orphans() > 0;
    is(kill(0, $pid), 0, 'kill_on_free');
    $child = Forkless->new(cmd => ['sleep', '0.01'])->launch;
    is($child->wait_exec, 1, 'wait_exec returns after launch');
    is($child->wait, 0, '… and wait returns the status');
}

# ---- Captured output ----
{
    my $output = capture(['tr', 'a-z', 'A-Z'], input => 'hello');
    is($output->stdout, 'HELLO', 'capture writes input and returns output');
    is($output->status, 0, 'status');
    $output = shell('echo out; echo err >&2; exit 2')->capture;
    is_deeply([$output->stdout, $output->stderr, $output->status], ["out\n", "err\n", 512], 'both streams and the status are returned');
    is(shell('echo out; echo err >&2')->capture(merged => 1)->stdout, "out\nerr\n", 'merged joins both streams');
    $output = shell('exec sleep 100')->capture(timeout => 0.05);
    ok($output->timed_out, 'the timeout is reported');
    is($?, 9, '… and kills the program');
    $output = shell('exec sleep 100')->capture(timeout => 0.05, signal => 'TERM', grace => 5);
    is($output->status, 15, '… or sends another signal first');
    $output = shell('head -c 100000 /dev/zero')->capture(limit => 1000);
    is_deeply([length $output->stdout, $output->stdout_cut], [1000, 99_000], 'limit keeps part and counts the rest');
    is(length capture(['cat'], input => 'x' x 1_000_000)->stdout, 1_000_000, 'a megabyte is written and read');
    is(capture(['cat'], input => "\0\xff\n")->stdout, "\0\xff\n", 'input and output are bytes');
    ok(!eval { capture(['cat'], input => "\x{263a}"); 1 }, 'wide characters in the input are refused');
    my $prepared = Forkless->new(cmd => ['echo', 'again'])->prepare;
    is($prepared->capture->stdout, "again\n", 'a prepared command runs twice') for 1 .. 2;
    is($prepared->spawn->wait, 0, '… and is spawned') if open(my $saved, '>&', 1);
    is((Forkless::launch_all(Forkless->new(cmd => ['true'])->prepare))[0]->wait, 0, 'launch_all');
    my ($raising) = Forkless::launch_all(Forkless->new(cmd => ['true'], raise => 1)->prepare);
    ok(!eval { $raising->stdin; 1 }, '… and its children have raise');
    $raising->wait;
    my (undef, $name) = tempfile(UNLINK => 1);
    my $for_log = sub { open my $log, '>>', $name or die; Forkless->new(cmd => ['echo', 'logged'], stdout => $log) };
    my ($first, $second) = ($for_log->(), $for_log->()->prepare);
    open my $other, '<', '/dev/null' or die;
    is($_->status, 0, 'a command keeps its handles open') for $first, $second;
    is(-s $name, length "logged\n" x 2, '… and the program writes to them');
}

# ---- Errors ----
{
    is(Forkless->new(cmd => ['no-such-program'])->spawn, undef, 'not there');
    is($! + 0, ENOENT, '… sets $!');
    my $error = $Forkless::error;
    is($error->errno, ENOENT, '… sets errno of the error');
    is($error->step_words, 'exec', '… and its step');
    like("$error", qr/failed to start "no-such-program"/, '… and its message');
    for my $name ("/\xc3\xa9", "/\xe2\x98\xba") {
        Forkless->new(cmd => [$name])->spawn;
        like("$Forkless::error", qr/\Q"$name"/, '… with the bytes of a name in UTF-8');
        like(Forkless->new(cmd => ['true'], cwd => $name)->prepare->steps, qr/\Q"$name"/, '… as in the steps');
    }
    ok(!eval { Forkless->new(cmd => ['no-such-program'], raise => 1)->spawn; 1 }, 'raised');
    isa_ok($@, 'Forkless::Error');
    is($@->errno, ENOENT, '… with its errno');
    is(Forkless->new(cmd => ['true'], cwd => '/no/such')->spawn, undef, 'no directory');
    is($Forkless::error->step_words, Forkless::step_words(7), '… names the step chdir');
    is(Forkless->new(cmd => ["a\0b"]), undef, 'a NUL in the program');
    is($! + 0, EINVAL, '… sets EINVAL');
    {
        is(Forkless->new(cmd => ['true', "a\0b"]), undef, '… in an argument');
        is(Forkless->new(cmd => ['true'], env => { A => "a\0" }), undef, '… in a variable');
        is(Forkless->new(cmd => ['true'], cwd => "/\0"), undef, '… in the directory');
    }
    is(Forkless->new(cmd => ['true'], env => { 'A=' => 1 }), undef, 'a bad name');
    is(Forkless->new(cmd => ['true'], fds => { 5 => 9999 })->spawn, undef, 'a descriptor that is not open');
    is($! + 0, EBADF, '… sets EBADF');
    is(Forkless->new(cmd => ['true'], fds => { 5 => (1 << 32) + 1 }), undef, 'a descriptor that no process has');
    is($! + 0, EBADF, '… sets EBADF');
    is(Forkless->new(cmd => ['true'], umask => -1), undef, 'a number that cannot be');
    is(Forkless->new(cmd => ['true'], setsid => !1)->status, 0, 'false is a number');
    is('15' =~ /(\d+)/ && Forkless::Child::signal_number($1), 15, 'a signal in a variable with magic');
    is(Forkless->new(cmd => ['true'], rlimit => ['NOFILE', 10, 5])->spawn, undef, 'a limit beyond its limit');
    my %wrong = (
        'odd settings'   => sub { Forkless->new('cmd') },
        'no command'     => sub { Forkless->new },
        'no such setting' => sub { Forkless->new(cmd => ['true'], colour => 1) },
        'too many'       => sub { Forkless->new(cmd => ['true'])->umask(1, 2) },
        'no list'        => sub { Forkless->new(cmd => ['true'], args => 'x') },
        'no hash'        => sub { Forkless->new(cmd => ['true'], fds => []) },
        'no signal'      => sub { Forkless->new(cmd => ['true'])->spawn->signal('NOSUCH') },
        'no word'        => sub { Forkless->new(cmd => ['true'], rlimit => ['NOSUCH', 1, 1]) },
        'no stream'      => sub { Forkless->new(cmd => ['true'], stdout => 'nowhere') },
        'no mode'        => sub { Forkless->new(cmd => ['true'], stdout => ['x', '/']) },
        'no option'      => sub { capture(['true'], colour => 1) },
        'a forged child' => sub { (bless \(my $x = 42), 'Forkless::Child')->wait },
        'a forged hash'  => sub { (bless {}, 'Forkless::Command')->spawn },
        'another kind'   => sub { Forkless::Child::_wait(Forkless->new(cmd => ['true']), 1) },
        'no object'      => sub { Forkless::Command::_spawn(undef) },
        'a class'        => sub { Forkless::Command::_spawn('Forkless::Command') },
    );
    for my $name (sort keys %wrong) {
        ok(!eval { $wrong{$name}->(); 1 }, $name);
    }
}

# ---- Default inheritance ----
{
    pipe my $reads, my $writes;
    require Fcntl;
    fcntl $writes, Fcntl::F_SETFD(), 0;
    is(shell('exec 2>/dev/null; echo x >/dev/fd/' . fileno($writes))->status != 0, 1, 'no other descriptor is inherited by default');
    is(shell('echo x >/dev/fd/' . fileno($writes), inherit_all => 1)->status, 0, '… but by inherit_all');
}

# Children whose objects were destroyed before they ended keep a descriptor until they are reaped.
select undef, undef, undef, 0.01 while Forkless::reap_orphans() > 0;
my $fds = open_fds();
for (1 .. 20) {
    shell('cat', stdin => 'pipe', stdout => 'pipe', stderr => 'null')->spawn->wait;
    Forkless->new(cmd => ['no-such-program'], stdout => 'pipe')->spawn;
    shell('true')->launch;
    capture(['true']);
}
select undef, undef, undef, 0.01 while Forkless::reap_orphans() > 0;
is(open_fds(), $fds, 'no descriptor is left');
ok(no_child(), 'no child is left');

done_testing;

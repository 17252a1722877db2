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

# ---- What a command says ----
is(text('pwd', cwd => '/usr'), "/usr\n", 'a directory');
opendir my $directory, '/usr' or die;
is(text('echo $WORD', env => { WORD => 'x y' }), "x y\n", 'a variable');
$ENV{GONE} = 1;
is(text('echo ${GONE-gone}', env => { GONE => undef }), "gone\n", 'one that is removed');
is(capture(['/usr/bin/env'])->stdout =~ /^GONE=1$/m, 1, 'one that is inherited');
is(Forkless->new(cmd => ['/usr/bin/env'], environment => { A => 1, B => 2 })->capture->stdout, "A=1\nB=2\n", 'all of it');
is(text('umask', umask => 077), "0077\n", 'a number');
is(text('ulimit -n', rlimit => ['NOFILE', 64, 64]), "64\n", 'several, with a word for C\'s number');
is(text('ulimit -n; ulimit -c', rlimit => [['NOFILE', 64, 64], ['CORE', 0, 0]]), "64\n0\n", 'twice');
sub ignores { return hex((text('grep SigIgn /proc/self/status', @_) =~ /([0-9a-f]{16})/)[0]) }
is(ignores(signal_ignore => ['USR1', 12]) & 0xa00, 0xa00, 'signals by name');
is(ignores() & 0xa80, 0, 'perl ignores SIGFPE, the program does not');
is(text('nice', nice => 7), "7\n", 'nice');
is(shell('nice')->nice(3)->umask(0)->capture->stdout, "3\n", 'settings as methods, in a chain');
like(shell('true', umask => 022)->prepare->steps, qr/umask/, 'steps');

# ---- Streams ----
{
    my ($file, $name) = tempfile(UNLINK => 1);
    is(shell('echo to a file', stdout => ['>', $name])->status, 0, 'a file');
    is(shell('echo more', stdout => ['>>', $name])->status, 0, 'appended');
    is(slurp($file), "to a file\nmore\n", '… both are there');
    is(text('cat', stdin => ['<', $name]), "to a file\nmore\n", 'read');
    is(text('cat', stdin => 'null'), '', 'null');
    my $child = shell('echo out; echo err >&2', stdout => 'pipe', stderr => 'stdout')->spawn;
    is(slurp($child->stdout), "out\nerr\n", 'a pipe, and standard error to it');
    is($child->wait, 0, '… wait');
    $child = shell('cat >&2', stdin => 'pipe', stderr => 'pipe')->spawn;
    print { $child->stdin } "through\n";
    close $child->stdin;
    is(slurp($child->stderr), "through\n", 'input by a pipe');
    is($child->wait, 0, '… its end');
    is(shell('cat', stdin => 'pipe', stdout => 'null')->spawn->wait, 0, 'wait closes the input');
    pipe my $reads, my $writes;
    is(shell('echo five >&5', fds => { 5 => $writes })->status, 0, 'a descriptor at another number');
    close $writes;
    is(slurp($reads), "five\n", '… it is that one');
    $child = shell('read x <&7; echo $x >&7', fds => { 7 => 'socketpair' })->spawn;
    my $socket = $child->socket(7);
    syswrite $socket, "both ways\n";
    is(scalar readline $socket, "both ways\n", 'a pair of sockets');
    $child->wait;
}

# ---- The end ----
{
    is(shell('exit 3')->status, 3 << 8, 'a status');
    is($?, 3 << 8, '… is $? too');
    is(shell('kill -9 $$')->status, 9, 'a signal');
    my $child = shell('exec sleep 100')->spawn;
    is($child->wait(0), undef, 'not yet');
    is($! + 0, ETIMEDOUT, '… ETIMEDOUT');
    is($child->wait(0.05), undef, 'nor by then');
    ok(kill(0, $child->pid), 'it has a pid');
    ok($child->signal('TERM'), 'a signal by name');
    is($child->wait, 15, '… ended it');
    is($child->wait, 15, 'asked again');
    is($child->status, 15, 'status');
    ok($child->usage->{max_rss_kib} > 0, 'usage');
    like($child->route, qr/clone/, 'route');
    $child = shell('trap "" TERM; echo; sleep 100', stdout => 'pipe', process_group => 0)->spawn;
    readline $child->stdout;
    is($child->terminate_group('TERM', 0.05), 9, 'a group that does not listen is killed');
    $child = shell('exec sleep 100', pidfd => 0)->spawn;
    is($child->wait(0.05), undef, 'a time-out without a pidfd');
    is($child->pidfd, undef, '… of which there is none');
    $child->kill;
    is($child->wait, 9, 'wait without one');
    $child = shell('exec sleep 100')->spawn;
    $child->signal('STOP');
    is($child->wait_change, (19 << 8) | 0x7f, 'a stop');
    $child->signal('CONT');
    is($child->wait_change(10), 0xffff, '… and going on');
    is($child->terminate('INT'), 2, 'terminate');
    $child = shell('exec sleep 100')->spawn;
    my $pid = $child->release;
    kill KILL => $pid;
    is(waitpid($pid, 0), $pid, 'a released child is waitpid\'s');
    ok(!eval { $child->kill; 1 }, '… and no more the object\'s');
    $child = shell('exec sleep 100', kill_on_free => 1)->spawn;
    $pid = $child->pid;
    undef $child;
    select undef, undef, undef, 0.01 while Forkless::reap_orphans() > 0;
    is(kill(0, $pid), 0, 'kill_on_free');
    $child = Forkless->new(cmd => ['sleep', '0.01'])->launch;
    is($child->wait_exec, 1, 'launch, and the exec');
    is($child->wait, 0, '… and the end');
}

# ---- Output ----
{
    my $output = capture(['tr', 'a-z', 'A-Z'], input => 'hello');
    is($output->stdout, 'HELLO', 'input and output');
    is($output->status, 0, 'status');
    $output = shell('echo out; echo err >&2; exit 2')->capture;
    is_deeply([$output->stdout, $output->stderr, $output->status], ["out\n", "err\n", 512], 'both streams');
    is(shell('echo out; echo err >&2')->capture(merged => 1)->stdout, "out\nerr\n", 'merged');
    $output = shell('exec sleep 100')->capture(timeout => 0.05);
    ok($output->timed_out, 'a time-out');
    is($?, 9, '… kills');
    $output = shell('exec sleep 100')->capture(timeout => 0.05, signal => 'TERM', grace => 5);
    is($output->status, 15, '… or sends another signal first');
    $output = shell('head -c 100000 /dev/zero')->capture(limit => 1000);
    is_deeply([length $output->stdout, $output->stdout_cut], [1000, 99_000], 'a limit');
    is(length capture(['cat'], input => 'x' x 1_000_000)->stdout, 1_000_000, 'a megabyte both ways');
    is(capture(['cat'], input => "\0\xff\n")->stdout, "\0\xff\n", 'bytes');
    ok(!eval { capture(['cat'], input => "\x{263a}"); 1 }, 'wide characters are no bytes');
    my $prepared = Forkless->new(cmd => ['echo', 'again'])->prepare;
    is($prepared->capture->stdout, "again\n", 'a prepared command') for 1 .. 2;
    is($prepared->spawn->wait, 0, '… spawned') if open(my $saved, '>&', 1);
    is((Forkless::launch_all(Forkless->new(cmd => ['true'])->prepare))[0]->wait, 0, 'launch_all');
}

# ---- Errors ----
{
    is(Forkless->new(cmd => ['no-such-program'])->spawn, undef, 'not there');
    is($! + 0, ENOENT, '… $!');
    my $error = $Forkless::error;
    is($error->errno, ENOENT, '… errno');
    is($error->step_words, 'exec', '… the step');
    like("$error", qr/failed to start "no-such-program"/, '… a sentence');
    ok(!eval { Forkless->new(cmd => ['no-such-program'], raise => 1)->spawn; 1 }, 'raised');
    isa_ok($@, 'Forkless::Error');
    is($@->errno, ENOENT, '… with its errno');
    is(Forkless->new(cmd => ['true'], cwd => '/no/such')->spawn, undef, 'no directory');
    is($Forkless::error->step_words, Forkless::step_words(7), '… is that step');
    is(Forkless->new(cmd => ["a\0b"]), undef, 'a NUL in the program');
    is($! + 0, EINVAL, '… EINVAL');
    {
        is(Forkless->new(cmd => ['true', "a\0b"]), undef, '… in an argument');
        is(Forkless->new(cmd => ['true'], env => { A => "a\0" }), undef, '… in a variable');
        is(Forkless->new(cmd => ['true'], cwd => "/\0"), undef, '… in the directory');
    }
    is(Forkless->new(cmd => ['true'], env => { 'A=' => 1 }), undef, 'a bad name');
    is(Forkless->new(cmd => ['true'], fds => { 5 => 9999 })->spawn, undef, 'a descriptor that is not open');
    is($! + 0, EBADF, '… EBADF');
    is(Forkless->new(cmd => ['true'], umask => -1), undef, 'a number that cannot be');
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

# ---- What is inherited when nothing is said ----
{
    pipe my $reads, my $writes;
    require Fcntl;
    fcntl $writes, Fcntl::F_SETFD(), 0;
    is(shell('exec 2>/dev/null; echo x >/dev/fd/' . fileno($writes))->status != 0, 1, 'no descriptor that was not named');
    is(shell('echo x >/dev/fd/' . fileno($writes), inherit_all => 1)->status, 0, '… unless that is asked for');
}

# Those that were dropped before they ended have a descriptor until then.
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

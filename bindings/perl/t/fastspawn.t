use v5.16;
use warnings;
use lib 't/lib';
use Errno qw(ENOENT EACCES EINVAL E2BIG EBADF);
use File::Temp 'tempdir';
use Look;
use POSIX ();
use Test::More;

use Forkless::FastSpawn;

# Tests the functions of Proc::FastSpawn. If the original is installed, its results are compared.
my $has_original = eval { require Proc::FastSpawn };
diag('SKIPPED: comparisons with Proc::FastSpawn because it is not installed') if !$has_original;

my %ours   = (spawn => \&spawn, spawnp => \&spawnp, fd_inherit => \&fd_inherit);
my %theirs = $has_original ? map { $_ => Proc::FastSpawn->can($_) } keys %ours : ();

my $dir = tempdir(CLEANUP => 1);
for my $sub (qw(a b)) {
    mkdir "$dir/$sub";
    for my $file ([program => "#!/bin/sh\necho $sub \$0 \"\$@\"\n"], [plain => "echo plain $sub \"\$@\"\n"]) {
        open my $out, '>', "$dir/$sub/$file->[0]";
        print $out $file->[1];
        close $out;
        chmod 0755, "$dir/$sub/$file->[0]";
    }
}

# The output of the program and its status, or $! if it could not be started.
sub run {
    my ($functions, $name, @words) = @_;
    pipe my $reads, my $writes or die;
    open my $saved, '>&', \*STDOUT or die;
    open STDOUT, '>&', $writes or die;
    close $writes;
    $! = 0;
    my $pid   = eval { no warnings; $functions->{$name}->(@words) };
    my $errno = $! + 0;
    my $died  = $@;
    open STDOUT, '>&', $saved or die;
    if (!defined $pid) {
        return $died =~ s/ at \S+ line.*//sr if $died;
        return "errno $errno";
    }
    my $text = slurp($reads);
    waitpid $pid, 0;
    # The original reports programs that do not exist with status 127.
    return "127" if $? == 127 << 8;
    return ($text // '') . "|$?";
}

for my $name (keys %ours) {
    is(prototype $ours{$name}, $name eq 'fd_inherit' ? '$;$' : '$$;$', "the prototype of $name");
    is(prototype $ours{$name}, prototype $theirs{$name}, '… is the original\'s') if $has_original;
}

local $ENV{PATH} = "$dir/a:$ENV{PATH}";
my @b     = ["PATH=$dir/b:/bin:/usr/bin", 'WORD=x'];
my @cases = (
    ['a program',         spawn  => '/bin/echo', ['echo', 'hello, world']],
    ['its environment',   spawn  => '/usr/bin/env', ['env'], ['HOME=/tmp', 'PATH=/bin']],
    ['an empty one',      spawn  => '/usr/bin/env', ['env'], []],
    ['its name',          spawn  => '/bin/sh', ['another', '-c', 'echo $0']],
    ['its exit status',   spawn  => '/bin/sh', ['sh', '-c', 'exit 5']],
    ['no search',         spawn  => 'program', ['program']],
    ['in our PATH',       spawnp => 'program', ['program', 'x']],
    ['in its own PATH',   spawnp => 'program', ['program', 'x'], @b],
    ['a path',            spawnp => "$dir/b/program", ['program', 'x'], @b],
    ['no first line',     spawnp => 'plain', ['plain', 'x y']],
    ['… in its own PATH', spawnp => 'plain', ['plain', 'x y'], @b],
    ['… at a path',       spawnp => "$dir/a/plain", ['plain', 'x y']],
    ['no PATH',           spawnp => 'echo', ['echo', 'x'], ['A=1']],
    ['not there',         spawnp => 'no-such-program', ['x']],
    ['nowhere',           spawn  => '/no/such/program', ['x']],
    ['a directory',       spawn  => '/', ['x']],
    ['no arguments',      spawn  => '/bin/echo', []],
    ['undef',             spawn  => '/bin/echo', ['echo', undef, 'x']],
    ['bytes',             spawn  => '/bin/echo', ['echo', "\xe9"]],
    ['upgraded',          spawn  => '/bin/echo', ['echo', do { my $text = "\xe9"; utf8::upgrade($text); $text }]],
    ['wide',              spawn  => '/bin/echo', ['echo', "\x{263a}"]],
    ['no list',           spawn  => '/bin/echo', 'echo'],
    ['a hash',            spawn  => '/bin/echo', { echo => 1 }],
    ['no environment',    spawn  => '/bin/echo', ['echo'], 'x'],
    ['undef for one',     spawn  => '/bin/echo', ['echo'], undef],
    ['signals',           spawn  => '/bin/grep', ['grep', '^Sig[BI]', '/proc/self/status']],
);
for my $case (@cases) {
    my ($name, @call) = @$case;
    my $got = run(\%ours, @call);
    if ($has_original) {
        my $expected = run(\%theirs, @call);
        # What the original reports with status 127, Forkless reports with undef and $!.
        $expected = $expected eq '127' && $got =~ /\Aerrno [1-9]/ ? $got : $expected;
        is($got, $expected, "$name: same as the original");
    }
    else {
        isnt($got, '', $name);
    }
}

is(run(\%ours, spawn => '/no/such/program', ['x']), 'errno ' . ENOENT, 'ENOENT');
is(run(\%ours, spawnp => 'no-such-program', ['x']), 'errno ' . ENOENT, 'ENOENT of a search');
is(run(\%ours, spawn => '', ['x']), 'errno ' . ENOENT, 'no name');
is(run(\%ours, spawn => '/', ['x']), 'errno ' . EACCES, 'EACCES');
is(run(\%ours, spawn => '/bin/echo', ['x', 'x' x 200_000]), 'errno ' . E2BIG, 'E2BIG');
is(run(\%ours, spawn => '/bin/echo', ['x', "a\0b"]), 'errno ' . EINVAL, 'a NUL in an argument is refused');
is(run(\%ours, spawn => "/bin/echo\0", ['x']), 'errno ' . EINVAL, '… in the path');
is(run(\%ours, spawn => '/bin/echo', ['x'], ["A=\0"]), 'errno ' . EINVAL, '… in the environment');
is(run(\%ours, spawn => '/usr/bin/env', ['env'], { A => 1 }), "A=1\n|0", 'a hash as environment');
is(scalar(my @list = spawn('/no/such', ['x'])), 1, 'undef is returned in list context too');

{
    pipe my $reads, my $writes or die;
    my $line = 'echo a pipe >/dev/fd/' . fileno $writes;
    fd_inherit(fileno $writes);
    waitpid spawn('/bin/sh', ['sh', '-c', $line]), 0;
    is($?, 0, 'an inherited descriptor is open');
    is(scalar readline $reads, "a pipe\n", '… and can be written to');
    fd_inherit(fileno $writes, 0);
    waitpid spawn('/bin/sh', ['sh', '-c', "exec 2>/dev/null; $line"]), 0;
    isnt($?, 0, 'a descriptor that is not inherited is closed');
    fd_inherit(9999);
    is($! + 0, EBADF, 'fd_inherit of a closed descriptor is EBADF');
}

{
    # The last command is kept in prepared form. Any difference from it must have an effect.
    my @same = (spawn => '/bin/sh', ['sh', '-c', 'echo $0 $1 $WORD $(umask) $(pwd)', 'a', 'b']);
    local $ENV{WORD} = 'one';
    my $first = run(\%ours, @same);
    is(run(\%ours, @same), $first, 'the same command again');
    $ENV{WORD} = 'two';
    is(run(\%ours, @same), $first =~ s/one/two/r, 'a changed value of a variable');
    $ENV{OTHER} = 1;
    is(run(\%ours, spawn => '/bin/sh', ['sh', '-c', 'echo $OTHER']), "1\n|0", 'an added variable');
    delete $ENV{OTHER};
    is(run(\%ours, spawn => '/bin/sh', ['sh', '-c', 'echo $OTHER']), "\n|0", '… and removed again');
    is(run(\%ours, spawn => '/bin/sh', ['sh', '-c', 'echo $0', $_]), "$_\n|0", "a changed argument, $_") for 'a', 'b', 'ab';
    is(run(\%ours, spawn => '/bin/sh', ['x', '-c', 'echo $#', 'a', "b$_"]), "1\n|0", 'a changed last argument, $_') for 1, 2;
    is(run(\%ours, spawn => '/bin/sh', ['x', '-c', 'echo $#', 'a']), "0\n|0", 'one argument less');
    my $old = umask 077;
    like(run(\%ours, @same), qr/0077/, 'a changed umask is inherited');
    umask $old;
    my $blocked = POSIX::SigSet->new(POSIX::SIGUSR2());
    my @mask    = (spawn => '/bin/grep', ['grep', 'SigBlk', '/proc/self/status']);
    run(\%ours, @mask);
    POSIX::sigprocmask(POSIX::SIG_BLOCK(), $blocked);
    is(run(\%ours, @mask), "SigBlk:\t0000000000000800\n|0", 'a changed signal mask is inherited');
    POSIX::sigprocmask(POSIX::SIG_UNBLOCK(), $blocked);
    is(run(\%ours, @mask), "SigBlk:\t0000000000000000\n|0", '… and its change back');
    local $SIG{PIPE} = 'IGNORE';
    is(run(\%ours, spawn => '/bin/sh', ['sh', '-c', 'kill -PIPE $$; echo here']), "here\n|0", 'ignored SIGPIPE is inherited');
    $SIG{PIPE} = 'DEFAULT';
    is(run(\%ours, spawn => '/bin/sh', ['sh', '-c', 'kill -PIPE $$; echo here']), '|13', '… and default SIGPIPE');
}

my $fds = open_fds();
for (1 .. 50) {
    waitpid spawn('/bin/true', ['true']), 0;
    spawn('/no/such/program', ['x']);
    spawnp('no-such-program', ['x']);
}
is(open_fds(), $fds, 'no descriptor is left');
ok(no_child(), 'no child is left');

{
    my %huge = map { ("VARIABLE_$_" => 'x' x 100) } 1 .. 5_000;
    my $pid  = spawnp('sh', ['sh', '-c', 'test ${#VARIABLE_77} = 100'], [map { "$_=$huge{$_}" } keys %huge]);
    waitpid $pid, 0;
    is($?, 0, 'an environment of half a megabyte is passed');
}

done_testing;

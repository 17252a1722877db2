# What system and qx answer, case by case: builtin.t runs this twice, with perl's own and with Forkless, and compares. Everything that a
# case prints comes before its line.
use v5.16;
use File::Temp 'tempdir';
no warnings;

$| = 1;
my $dir = tempdir(CLEANUP => 1);

sub file {
    my ($name, $text, $mode) = @_;
    open my $file, '>', "$dir/$name" or die "$name: $!";
    print $file $text;
    close $file;
    chmod $mode, "$dir/$name";
    return "$dir/$name";
}
my $plain    = file(plain    => "echo a file without a first line: \$1 \$#\n", 0755);
my $mode     = file(mode     => "#!/bin/sh\n", 0644);
my $script   = file(script   => "#!/bin/sh\necho a script: \$1 \$#\n", 0755);
my $bad      = file(bad      => "#!/no/such/interpreter\n", 0755);
my $numbered = file(numbered => "#!/bin/sh\nexit 42\n", 0755);
my $wide     = "\x{263a}";
my $latin    = "\xe9";
utf8::upgrade(my $upgraded = $latin);

sub case {
    my ($name, $run) = @_;
    $! = 0;
    $? = 0;
    my @got   = $run->();
    my $errno = $? == -1 ? $! + 0 : '-';
    my $got   = join '|', map { defined $_ ? $_ : 'undef' } @got;
    print "== [$name]: got $got, status $?, native ${^CHILD_STATUS_NATIVE}, errno $errno\n";
}

my @none = ();
case('nothing'                => sub { system @none });
case('an empty string'        => sub { system '' });
case('blanks'                 => sub { system " \t " });
case('an empty name'          => sub { system '', 'x' });
case('a name that is not there' => sub { system 'no-such-program' });
case('… with arguments'       => sub { system 'no-such-program', 'x' });
case('… for a shell'          => sub { system 'no-such-program >/dev/null 2>&1' });
case('a path that is not there' => sub { system '/no/such/program', 'x' });
case('a file that may not be run' => sub { system $mode, 'x' });
case('a directory'            => sub { system '/', 'x' });
case('no interpreter'         => sub { system $bad });
case('false'                  => sub { system 'false' });
case('42'                     => sub { system $numbered });
case('42, list'               => sub { system $numbered, 'x' });
case('death by a signal'      => sub { system 'kill -9 $$' });
case('death of a program'     => sub { system 'sh', '-c', 'kill -15 $$' });
case('a list'                 => sub { system 'echo', 'two words', '', '*' });
case('words'                  => sub { system "  echo\ttwo   words " });
case('a script'               => sub { system "$script x" });
case('… and a list'           => sub { system $script, 'x y' });
case('no first line'          => sub { system "$plain x" });
case('… and a list'           => sub { system $plain, 'x y' });
{
    local $ENV{PATH} = "/no/such:$dir:$ENV{PATH}";
    case('no first line, in PATH' => sub { system 'plain', 'x y' });
    case('a script, in PATH'      => sub { system 'script x' });
}
{
    delete local $ENV{PATH};
    case('without PATH' => sub { system 'sh', '-c', 'echo here' });
}
case('another name'           => sub { system {'/bin/sh'} 'its-name', '-c', 'echo $0' });
case('… of one word'          => sub { my @words = ('/bin/true; echo no'); system {'/bin/true'} @words });
case('… that is empty'        => sub { system {''} 'echo', 'as its first argument says' });
case('… that is not there'    => sub { system {'no-such-program'} 'echo' });
case('2>&1'                   => sub { system 'ls /no/such/file 2>&1' });
case('2>&1, blanks'           => sub { system "ls /no/such/file 2>&1 \n" });
case('x2>&1'                  => sub { system 'echo x2>&1' });
case('2>&1 alone'             => sub { system ' 2>&1' });
case('a newline'              => sub { system "echo a\n" });
case('two newlines'           => sub { system "echo a\n\n" });
case('two lines'              => sub { system "echo a\necho b" });
case('a variable'             => sub { system 'A=1 env | grep ^A=' });
case('… and nothing else'     => sub { system 'A=1' });
case('a name like one'        => sub { system 'A-B=1' });
case('exec'                   => sub { system 'exec echo a' });
case('.'                      => sub { system ". $plain" });
case('a comment'              => sub { system 'echo # a' });
case('percent, tilde, caret'  => sub { system 'echo %x ^y ~' });
case('quotes'                 => sub { system q{echo 'a  b' "c  d"} });
case('a vertical tab'         => sub { system "echo\x0ba" });
case('wide characters'        => sub { system 'echo', $wide });
case('bytes'                  => sub { system 'echo', $latin });
case('upgraded'               => sub { system 'echo', $upgraded });
case('wide, in a string'      => sub { system "echo $wide" });
case('undef'                  => sub { system 'echo', undef, 'a' });
case('a number'               => sub { system 'echo', 1.50, 0x10 });
{
    package Text;
    use overload '""' => sub { my @moves_the_stack = (1) x 100_000; ${ $_[0] } };
    package main;
    case('an object' => sub { system 'echo', (bless \(my $text = 'a text'), 'Text'), 'b' });
}
{
    my $tied = tie my %hash, 'Tied';
    sub Tied::TIEHASH { return bless {}, shift }
    sub Tied::FETCH { return "fetched $_[1]" }
    case('a tied value' => sub { system 'echo', $hash{x} });
}
case('output before it' => sub { local $| = 0; print 'perl first, '; system 'echo then the program' });
case('the environment'  => sub { local $ENV{SOME_WORD} = 'set'; system 'sh', '-c', 'echo $SOME_WORD' });
case('a large argument' => sub { system 'sh', '-c', 'echo ${#1}', 'sh', 'x' x 100_000 });
case('too large a one'  => sub { system 'echo', 'x' x 300_000 });
{
    pipe my $reads, my $writes;
    case('close-on-exec' => sub { system 'sh', '-c', "{ echo a >/dev/fd/${\fileno $writes}; } 2>/dev/null || echo closed" });
    require Fcntl;
    fcntl $writes, Fcntl::F_SETFD(), 0;
    case('not close-on-exec' => sub { system 'sh', '-c', "echo passed on >/dev/fd/${\fileno $writes}" });
    print scalar readline $reads;
}
case('ignored signals' => sub {
    local @SIG{qw(USR1 INT PIPE)} = ('IGNORE') x 3;
    system 'grep', '^Sig[BI]', '/proc/self/status';
});
case('handled signals' => sub {
    local $SIG{USR1} = sub { };
    local $SIG{INT}  = sub { };
    system 'grep', '^Sig[BI]', '/proc/self/status';
});
case('blocked signals' => sub {
    require POSIX;
    my $old = POSIX::SigSet->new;
    POSIX::sigprocmask(POSIX::SIG_BLOCK(), POSIX::SigSet->new(POSIX::SIGUSR2()), $old);
    system 'grep', '^SigBlk', '/proc/self/status';
    POSIX::sigprocmask(POSIX::SIG_SETMASK(), $old);
});
case('interrupted' => sub {
    my $count = 0;
    local $SIG{INT}  = sub { $count++ };
    local $SIG{QUIT} = sub { $count++ };
    my $status = system 'sleep 0.2; kill -INT $PPID; kill -QUIT $PPID; kill -INT $$';
    return ($count, $status);
});
case('a handler of SIGCHLD' => sub {
    my ($count, $reaped) = (0, 0);
    local $SIG{CHLD} = sub { $count++; $reaped++ while waitpid(-1, 1) > 0 };
    my $status = system 'false';
    return ($count, $reaped, $status);
});
case('SIGCHLD ignored' => sub { local $SIG{CHLD} = 'IGNORE'; system 'false' });
case('a handler runs meanwhile' => sub {
    my $at = '';
    local $SIG{USR1} = sub { $at .= 'x' };
    my $status = system 'kill -USR1 $PPID; sleep 0.1; exit 7';
    return ($at, $status);
});
for my $number (0 .. 2) {
    my $is_output = $number > 0;
    open my $saved, $is_output ? '>&' : '<&', $number or die;
    my $program = "for n in 0 1 2; do test -e /proc/self/fd/\$n && printf \"\$n \"; done >$dir/open; exit 0";
    require POSIX;
    POSIX::close($number);
    my $status = system $program;
    POSIX::dup2(fileno $saved, $number);
    open my $found, '<', "$dir/open" or die;
    case("closed: $number" => sub { return ($status, readline $found) });
}

case('qx'                    => sub { scalar `echo a; echo b` });
case('qx, a list'            => sub { my @lines = `echo a; echo b; printf c`; (scalar(@lines), @lines) });
case('qx, no context'        => sub { `echo a; exit 3`; () });
case('qx, a program'         => sub { scalar `echo a` });
case('qx, not there'         => sub { scalar `no-such-program` });
case('qx, not there, a list' => sub { my @lines = `no-such-program`; scalar @lines });
case('qx, false'             => sub { scalar `false` });
case('qx, $! after a status' => sub { my $out = `false`; $! + 0 });
case('qx, nothing'           => sub { scalar `` });
case('qx, nothing, a list'   => sub { my @lines = ``; scalar @lines });
case('qx, 2>&1'              => sub { scalar `ls /no/such/file 2>&1` });
case('qx, no first line'     => sub { scalar `$plain x` });
case('qx, separator'         => sub { local $/ = 'b'; my @parts = `printf abcbd`; @parts });
case('qx, separator, scalar' => sub { local $/ = 'b'; scalar `printf abcbd` });
case('qx, records'           => sub { local $/ = \2; my @parts = `printf abcde`; @parts });
case('qx, bytes'             => sub { my $out = `printf '\\303\\251'`; (length $out, utf8::is_utf8($out) ? 1 : 0) });
case('qx, layers'            => sub { use open IN => ':utf8'; my $out = `printf '\\303\\251'`; (length $out, utf8::is_utf8($out) ? 1 : 0) });
case('qx, crlf'              => sub { use open IN => ':crlf'; my $out = `printf 'a\\r\\n'`; length $out });
case('readpipe'              => sub { scalar readpipe 'echo a' });
case('readpipe of $_'        => sub { local $_ = 'echo topic'; scalar readpipe });
case('qx, much'              => sub { length `head -c 300000 /dev/zero` });
case('qx, NULs'              => sub { my $out = `printf 'a\\000b'`; length $out });
case('qx, output before it'  => sub { local $| = 0; print 'perl first, '; scalar `echo the program >&2; echo x` });
case('qx in a loop'          => sub { my $all = ''; $all .= `echo $_` for 1 .. 3; $all });
case('qx of qx'              => sub { my $inner = `echo inner`; scalar readpipe "echo $inner" });
case('qx, a handler meanwhile' => sub {
    my $at = 0;
    local $SIG{USR1} = sub { $at++ };
    my $out = `kill -USR1 \$PPID; sleep 0.1; echo x`;
    return ($at, $out);
});
case('qx, not ignored meanwhile' => sub {
    my $count = 0;
    local $SIG{INT} = sub { $count++ };
    my $out = `kill -INT \$PPID; sleep 0.1; echo x`;
    return ($count, $out);
});
case('qx, SIGCHLD ignored' => sub { local $SIG{CHLD} = 'IGNORE'; scalar `echo x` });
case('qx, stdin'           => sub { scalar `cat </dev/null` });

# ---- open ----
sub piped {
    my ($handle, $pid) = @_;
    return ('undef', $! + 0) if !$pid;
    my $is_pid = $pid > 1 && -p $handle ? 'a pid' : $pid;
    my @lines  = readline $handle;
    $! = 0;
    return ($is_pid, @lines, close $handle ? 'closed' : 'not closed', $?, $! + 0);
}
case('open, a list'         => sub { my $pid = open my $in, '-|', 'echo', 'a  b'; piped($in, $pid) });
case('open, a line'         => sub { my $pid = open my $in, '-|', 'echo a; exit 3'; piped($in, $pid) });
case('open, blanks'         => sub { my $pid = open my $in, ' -| ', 'echo a'; piped($in, $pid) });
case('open, not there'      => sub { my $pid = open my $in, '-|', 'no-such-program', 'x'; piped($in, $pid) });
case('open, two arguments'  => sub { my $pid = open my $in, 'echo a b |'; piped($in, $pid) });
case('open, … a line'       => sub { my $pid = open my $in, " echo a; exit 4 | \n"; piped($in, $pid) });
case('open, … not there'    => sub { my $pid = open my $in, 'no-such-program x |'; piped($in, $pid) });
case('open, layers'         => sub { my $pid = open my $in, '-|:utf8', "printf '\\303\\251'"; my @got = piped($in, $pid); length $got[1] });
case('open, crlf'           => sub { my $pid = open my $in, '-|:crlf', "printf 'a\\r\\nb\\r\\n'"; my @got = piped($in, $pid); map { length } @got[1, 2] });
case('open, use open'       => sub { use open IN => ':utf8'; my $pid = open my $in, '-|', "printf '\\303\\251'"; my @got = piped($in, $pid); length $got[1] });
case('open, to it'          => sub { open my $out, '|-', 'cat' or die; print $out "to it\n"; (close $out, $?) });
case('open, to a line'      => sub { open my $out, '|-', 'cat; exit 5' or die; print $out "to it\n"; (close $out, $?, $! + 0) });
case('open, | first'        => sub { open my $out, '| cat' or die; print $out "to it\n"; (close $out, $?) });
case('open, by name'        => sub { my $pid = open NAMED, '-|', 'echo', 'named'; my @got = piped(\*NAMED, $pid); @got });
case('open, again'          => sub { open my $in, '<', '/dev/null'; my $pid = open $in, '-|', 'echo', 'again'; piped($in, $pid) });
case('open, failed again'   => sub { open my $in, '<', '/dev/null'; my $pid = open $in, '-|', 'no-such-program', 'x'; (defined fileno $in ? 'open' : 'closed') });
case('open, implicit close' => sub { { open my $in, '-|', 'exit 6;' } $? });
case('open, - is a fork'    => sub { my $pid = open my $in, '-|', '-'; if (!$pid) { print "a copy\n"; require POSIX; POSIX::_exit(7) } my @got = piped($in, $pid); @got });
case('open, … in one word'  => sub { my $pid = open my $in, '-|'; if (!$pid) { print "a copy\n"; require POSIX; POSIX::_exit(7) } my @got = piped($in, $pid); @got });
case('open, a file'         => sub { open my $in, '<', $plain or die; scalar readline $in });
case('open, a file of two'  => sub { open my $in, $plain or die; scalar readline $in });
case('open, a copy'         => sub { open my $copy, '>&', \*STDOUT or die; print $copy "a copy\n"; close $copy; () });
case('open, memory'         => sub { open my $in, '<', \"memory" or die; scalar readline $in });
case('open, eof and lines'  => sub { open my $in, '-|', 'printf', 'a\\nb\\n' or die; my @got; push @got, "$.: $_" while <$in>; (@got, eof $in) });
case('open, a number'       => sub { my $pid = open my $in, '-|', 'echo', 1, 2.5; piped($in, $pid) });
case('open, waitpid'        => sub { my $pid = open my $in, '-|', 'exit 8;'; readline $in; my $is = waitpid($pid, 0) == $pid; ($is, $?, close $in ? 1 : 0, $?) });
{
    package Opens;
    sub TIEHANDLE { return bless {}, shift }
    sub OPEN { shift; return "tied: @_" }
    tie *TIED, 'Opens';
    main::case('open, tied' => sub { scalar open TIED, '-|', 'echo', 'x' });
}

use warnings;
case('warning: open'      => sub { open my $in, '-|', 'no-such-program', 'x'; () });
case('warning: a list'    => sub { system 'no-such-program', 'x' });
case('warning: a string'  => sub { system 'no-such-program x' });
case('warning: qx'        => sub { scalar `no-such-program` });
case('warning: a path'    => sub { system {'/no/such/program'} 'x' });
case('warning: undef'     => sub { system 'echo', undef });
case('no warning'         => sub { no warnings 'exec'; system 'no-such-program' });
case('no children left'   => sub { waitpid(-1, 0), $! + 0 });

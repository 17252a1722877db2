use v5.16;
use warnings;
use lib 't/lib';
use Errno 'ENOENT';
use IPC::Open2 ();
use IPC::Open3 ();
use Look;
use Symbol 'gensym';
use Test::More;

use Forkless qw(open2 open3 popen);

# ---- popen, compared with perl's open of the same ----
sub both {
    my ($name, $mode, @command) = @_;
    my @got;
    for my $by ('perl', 'forkless', 'open') {
        my $handle;
        no warnings 'exec';
        if ($by eq 'perl') { open $handle, $mode, @command or $handle = undef }
        elsif ($by eq 'open') { use Forkless 'open'; open $handle, $mode, @command or $handle = undef }
        else                  { $handle = popen($mode, @command) }
        my $errno = $! + 0;
        if (!$handle) { push @got, "errno $errno"; next }
        my $text = '';
        if   ($mode eq '-|') { $text = slurp($handle) // '' }
        else                 { print $handle "text\n" }
        $! = 0;
        my $closed = close $handle ? 'closed' : 'not closed';
        push @got, "$text$closed|$?|" . (${^CHILD_STATUS_NATIVE} // '') . '|' . ($! + 0);
    }
    is($got[1], $got[0], "popen: $name, same as perl's open");
    return is($got[2], $got[0], "open: $name, same as perl's open");
}
both('a program',        '-|', 'echo', 'a  b');
both('a line',           '-|', 'echo a; exit 3');
both('words',            '-|', 'echo a b');
both('a status',         '-|', 'sh', '-c', 'exit 3');
both('a signal',         '-|', 'sh', '-c', 'kill -9 $$');
both('not there',        '-|', 'no-such-program', 'x');
both('not there, a line', '-|', 'no-such-program');
both('2>&1',             '-|', 'ls /no/such/file 2>&1');
both('its descriptors',  '-|', 'ls', '/proc/self/fd');
both('to it',            '|-', 'sh', '-c', 'read x; test "$x" = text');
both('to a line',        '|-', 'read x; test "$x" = text; exit 4');
{
    my @warnings;
    local $SIG{__WARN__} = sub { push @warnings, @_ };
    is(popen('-|', 'no-such-program'), undef, 'popen of a missing program returns undef');
    is($! + 0, ENOENT, '… and sets ENOENT');
    like("@warnings", qr/\ACan't exec "no-such-program": .* at \Q$0\E line \d+\.$/, '… and perl\'… and issues perl\'s warning, with the caller\'s line');
    no warnings 'exec';
    @warnings = ();
    is(popen('-|', 'no-such-program'), undef, 'popen of a missing program returns undef');
    is("@warnings", '', '… and no warning is issued under "no warnings"');
}
{
    my ($handle, $pid) = popen('-|', 'sh', '-c', 'echo $$');
    is(scalar readline $handle, "$pid\n", 'popen returns the pid in list context');
    close $handle;
    $handle = popen('|-', 'cat >/dev/null');
    undef $handle;
    ok(no_child(), 'a destroyed handle is closed and its child reaped');
    ok(!eval { popen('x', 'true'); 1 }, 'an unknown mode is refused');
    ok(!eval { popen('-|'); 1 }, 'a missing command is refused');
    ok(!eval { popen('-|', '-'); 1 }, 'the command -, a fork, is refused');
    $handle = popen('-|', "printf '\\303\\251'");
    binmode $handle, ':utf8';
    is(length slurp($handle), 1, 'layers of the open pragma are applied');
}

# ---- open2 and open3, compared with IPC::Open2 and IPC::Open3 ----
my %by = (
    perl     => [\&IPC::Open2::open2, \&IPC::Open3::open3],
    forkless => [\&open2,             \&open3],
);
for my $name (sort keys %by) {
    my ($two, $three) = @{ $by{$name} };
    my $pid = $two->(my $out, my $in, 'tr', 'a-z', 'A-Z');
    print $in "two\n";
    close $in;
    is(slurp($out), "TWO\n", "$name: open2 connects input and output");
    is(waitpid($pid, 0), $pid, "$name: open2 returns the pid");
    is($?, 0, "$name: waitpid sets the status");

    my $err = gensym;
    $pid = $three->(my $w, my $r, $err, 'sh', '-c', 'cat; echo err >&2; exit 3');
    print $w "three\n";
    close $w;
    is(slurp($r), "three\n", "$name: open3 connects output");
    is(slurp($err), "err\n", "$name: open3 connects errors");
    waitpid $pid, 0;
    is($?, 3 << 8, "$name: waitpid sets the status");

    $pid = $three->($w, my $same, undef, 'sh -c "echo out; echo err >&2"');
    is(slurp($same), "out\nerr\n", "$name: without a handle for errors, they are written to the output");
    waitpid $pid, 0;
    $pid = $three->('<&STDIN', my $only, '', 'echo only output') if open STDIN, '<', '/dev/null';
    is(slurp($only), "only output\n", "$name: <&STDIN passes STDIN");
    waitpid $pid, 0;
    ok(!defined fileno STDIN, "$name: … and closes it in perl");
    open STDIN, '<', '/dev/null';

    {
        no strict 'refs';
        no warnings 'once';
        $pid = $three->('WRITES', 'READS', 'ERRORS', 'cat');
        print { *WRITES } "named\n";
        close *WRITES;
        is(slurp(*READS), "named\n", "$name: names of handles are those of the caller's package");
        waitpid $pid, 0;
        close *READS;
        close *ERRORS;
    }
    $pid = $three->(\*WRITES, \*READS, \*READS, 'sh', '-c', 'echo a; echo b >&2');
    is(slurp(\*READS), "a\nb\n", "$name: one handle serves output and errors");
    waitpid $pid, 0;

    pipe my $reads, my $writes;
    open STDIN, '<', '/dev/null';
    $pid = $three->('<&STDIN', '>&' . fileno $writes, '>&STDERR', 'echo', 'to a number');
    waitpid $pid, 0;
    is(scalar readline $reads, "to a number\n", "$name: >&N passes descriptor N");

    open STDIN, '<', '/dev/null';
    my $died = !eval { $three->(my $x, my $y, undef, 'no-such-program', 'x'); 1 };
    ok($died, "$name: a missing program is an exception");
    is($! + 0, ENOENT, "$name: … with errno");
    like($@, qr/\Aopen3: exec of no-such-program x failed: /, "$name: … and its message");
    like($@, qr/at \Q$0\E line/, "$name: … at the caller's line") if $name eq 'forkless';
    ok(!eval { $three->(my $x, my $y); 1 }, "$name: too few arguments are refused");
}
ok(!eval { open2(my $x, my $y, '-'); 1 }, 'open2 refuses the command -');
{
    open my $memory, '>', \my $text;
    ok(!eval { open3('<&STDIN', '>&' . *$memory, undef, 'true'); 1 }, 'an in-memory handle is refused');
}
ok(no_child(), 'no child is left');

done_testing;

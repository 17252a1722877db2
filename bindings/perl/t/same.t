use v5.16;
use warnings;
use File::Temp 'tempdir';
use Test::More;

# Each case in a perl of its own, by perl's own functions and by ours: what they do to STDIN, STDOUT, STDERR and to descriptors, how
# often they ask a tied variable, and every warning, are the same.

my $dir = tempdir(CLEANUP => 1);
my $before = do { local $/ = "\n== "; my $text = readline DATA; $text =~ s/\n== \z//r };
my @perl = ($^X, map { '-I' . (m{\A/} ? $_ : do { require Cwd; Cwd::getcwd() . "/$_" }) } @INC);
my @cases;
{
    local $/ = "\n== ";
    while (my $text = readline DATA) {
        chomp $text;
        push @cases, [split /\n/, $text, 2];
    }
}

# To a file: a program that is left over by a fault would hold a pipe open.
sub answer {
    my ($code, @words) = @_;
    open my $file, '>', "$dir/case" or die;
    print $file "$before\n#line 1 \"case\"\n$code\n";
    close $file;
    CORE::system('sh', '-c', 'exec "$@" </dev/null >"$0" 2>&1', "$dir/out", @perl, @words, "$dir/case", $dir);
    my $status = $?;
    open my $found, '<', "$dir/out" or die;
    # What a program prints comes before or after what perl does.
    return join '', sort(readline $found), "status $status\n";
}

for my $case (@cases) {
    my ($name, $code) = @$case;
    my $theirs = answer($code);
    like($theirs, qr/status 0\n\z/, "$name: perl's own functions run without an error");
    is(answer($code, '-MForkless=:everywhere'), $theirs, "$name: Forkless does the same");
}

done_testing;

__DATA__
use strict;
use warnings;
use POSIX ();
my ($in, $out);
# Not a wait without an end, and no descriptors of whoever runs the tests.
alarm 60;
$| = 1;
POSIX::close($_) for 3 .. 400;
open our $report, '>&', 2 or die;
sub tell_ { syswrite $report, join('|', map { defined $_ ? $_ : 'undef' } @_) . "\n"; return }
sub fds { opendir my $list, '/proc/self/fd' or die; return join ' ', sort { $a <=> $b } grep { /\d/ && $_ != fileno $list } readdir $list }
sub flags { return fcntl($_[0], 1, 0) // 'closed' }
sub closed { my ($handle) = @_; $! = 0; my $is_closed = close $handle; return tell_($is_closed ? 'closed' : 'not closed', $?, $! + 0, fds()) }
sub opened { my ($pid, $handle) = @_; my $errno = $! + 0; return tell_(!$pid ? ('not open', $errno) : $pid > 1 ? 'a pid' : $pid, $handle && fileno $handle) }
sub program { my ($pid, $handle) = @_; opened($pid, $handle); tell_(readline $handle) if $pid; return closed($handle) }
$SIG{__WARN__} = sub { tell_("warning: $_[0]" =~ s/\n//r) };
{
    package Tied;
    sub TIESCALAR { return bless [$_[1], 0], $_[0] }
    sub FETCH { $_[0][1]++; return $_[0][0] }
    package Text;
    use overload '""' => sub { $_[0]{asked}++; return $_[0]{text} }, fallback => 1;
    sub new { return bless { text => $_[1], asked => 0 }, $_[0] }
}
sub asked { return tell_('asked', map { (tied $$_)->[1] } @_) }
== STDOUT to a line
opened(open(STDOUT, '|-', 'cat >&2; exit 3'), \*STDOUT);
tell_(flags(\*STDOUT));
print "text\n";
closed(\*STDOUT);
== STDOUT to a program, which others inherit
opened(open(STDOUT, '|-', 'sh', '-c', 'cat >&2'), \*STDOUT);
system 'echo', 'inherited';
print "text\n";
closed(\*STDOUT);
== STDOUT, two arguments
opened(open(STDOUT, '| cat >&2'), \*STDOUT);
print "text\n";
closed(\*STDOUT);
== STDERR
fcntl $report, 2, 0;
opened(open(STDERR, '| cat >&' . fileno $report), \*STDERR);
print STDERR "text\n";
closed(\*STDERR);
== STDIN
opened(open(STDIN, '-|', 'echo a; echo b'), \*STDIN);
tell_(flags(\*STDIN), <STDIN>);
closed(\*STDIN);
== STDIN, which others inherit
opened(open(STDIN, '-|', 'echo a; echo b'), \*STDIN);
system 'cat';
closed(\*STDIN);
== STDIN, again
open STDIN, '-|', 'echo a';
1 while <STDIN>;
open STDIN, '-|', 'echo b';
tell_(eof STDIN ? 1 : 0, <STDIN>, fds());
== STDIN, not there
no warnings;
opened(open(STDIN, '-|', 'no-such-program x'), \*STDIN);
tell_(fds(), scalar <STDIN>);
== STDOUT, not there
no warnings;
opened(open(STDOUT, '|-', 'no-such-program', 'x'), \*STDOUT);
print "as it was\n";
tell_(fds());
== STDOUT, unflushed
$| = 0;
print 'before ';
open STDOUT, '|-', 'cat >&2';
print "in the pipe\n";
closed(\*STDOUT);
== STDOUT, restored
open my $old, '>&', \*STDOUT;
open STDOUT, '|-', 'cat >&2';
print "in the pipe\n";
closed(\*STDOUT);
open STDOUT, '>&', $old;
print "restored\n";
close $old;
tell_(fds());
== STDOUT, restored without close
open my $old, '>&', \*STDOUT;
open STDOUT, '|-', 'cat >/dev/null';
print "in the pipe\n";
open STDOUT, '>&', $old;
print "restored\n";
tell_($?, fds(), wait > 0 ? 1 : 0);
== STDOUT in memory
close STDOUT;
open STDOUT, '>', \my $text or die;
opened(open(STDOUT, '|-', 'cat >&2'), \*STDOUT);
print "text\n";
closed(\*STDOUT);
== STDIN, a socket
socketpair my $ours, my $theirs, 1, 1, 0;
open STDIN, '+<&', $ours;
opened(open(STDIN, '-|', 'echo x'), \*STDIN);
tell_(<STDIN>, fds());
== STDIN, layers of the mode are not heeded
opened(open(STDIN, '-|:crlf', 'printf "a\r\n"'), \*STDIN);
tell_(join(',', PerlIO::get_layers(*STDIN)), length <STDIN>);
== STDIN, its own layers stay
binmode STDIN, ':utf8';
open STDIN, '-|', 'printf "a\r\n"';
tell_(join(',', PerlIO::get_layers(*STDIN)), length <STDIN>);
== what $^F says
$^F = 10;
opened(open($in, '-|', 'echo a'), $in);
tell_(flags($in), <$in>);
opened(open($in, '-|', 'echo b'), $in);
tell_(flags($in), <$in>);
closed($in);
== opened again, the first is waited for
open $out, '|-', "cat >/dev/null; sleep 0.1; : >$ARGV[0]/first";
opened(open($out, '|-', 'cat >&2'), $out);
tell_(-e "$ARGV[0]/first" ? 'has ended' : 'has not');
unlink "$ARGV[0]/first";
print $out "second\n";
closed($out);
tell_(wait);
== STDIN closed, from a program
close STDIN;
program(open($in, '-|', 'echo a'), $in);
== STDIN closed, from one that reads
close STDIN;
program(open($in, '-|', 'cat 2>&1; echo a'), $in);
== STDIN closed, from one that reads, a list
close STDIN;
program(open($in, '-|', 'cat', '-'), $in);
== STDIN closed, to a program
close STDIN;
opened(open($out, '|-', 'cat >&2'), $out);
print $out "text\n";
closed($out);
== STDOUT closed, from a program
close STDOUT;
program(open($in, '-|', 'echo a'), $in);
== STDOUT closed, to a program
close STDOUT;
opened(open($out, '|-', 'cat >&2'), $out);
print $out "text\n";
closed($out);
== STDOUT closed, which gets its number back
close STDOUT;
opened(open(STDOUT, '|-', 'cat >&2'), \*STDOUT);
system 'echo', 'inherited';
closed(\*STDOUT);
== STDIN and STDOUT closed, from a program
close STDIN; close STDOUT;
program(open($in, '-|', 'echo a'), $in);
== STDIN and STDOUT closed, to a program
close STDIN; close STDOUT;
opened(open($out, '|-', 'cat >&2'), $out);
print $out "text\n";
closed($out);
== STDIN and STDOUT closed, reopened
close STDIN; close STDOUT;
program(open(STDIN, '-|', 'echo a'), \*STDIN);
program(open(STDOUT, '-|', 'echo a'), \*STDOUT);
== STDIN and STDOUT closed, qx and system
close STDIN; close STDOUT;
tell_(`echo a`, $?, fds());
tell_(system('exit 3;'), $?, fds());
== no such layer
opened(open($in, '-|:nosuch', 'echo a'), $in);
== no such layer, to a program
opened(open($out, '|-:nosuch(x)', 'cat'), $out);
== no such layer, two words
opened(open($in, '-|:crlf :nosuch', 'echo', 'a'), $in);
== no such layer, no colon
opened(open($in, '-|x', 'echo a'), $in);
opened(open($in, '|-|', 'cat'), $in);
opened(open($in, '-|<', 'cat'), $in);
== no such encoding
opened(open($in, '-|:encoding(nosuch)', 'echo a'), $in);
== a layer that does not end
opened(open($in, '-|:utf8(', 'echo a'), $in);
== layers
for my $mode ('-|', '-| :utf8 ', ' -|:crlf:utf8', '-|:raw', '-|:unix', "-|\n:crlf", '-|:encoding(UTF-8)') {
    opened(open($in, $mode, 'echo a'), $in);
    tell_($mode, PerlIO::get_layers($in));
}
opened(open($out, '|- :utf8', 'cat >/dev/null'), $out);
tell_(PerlIO::get_layers($out));
== layers of use open
use open IN => ':crlf', OUT => ':utf8';
opened(open($in, '-|:utf8', 'echo a'), $in);
tell_(PerlIO::get_layers($in));
opened(open($out, '|-', 'cat'), $out);
tell_(PerlIO::get_layers($out));
== modes that are none
for my $mode ('| -', '- |', '||-', '-', '+-|', '|', '') {
    tell_($mode, eval { open $in, $mode, 'true' }, $@);
}
== tied, three
tie my $mode, 'Tied', '-|';
tie my $command, 'Tied', 'echo';
opened(open($in, $mode, $command, 'a'), $in);
tell_(<$in>);
asked(\$mode, \$command);
== tied, a line
tie my $mode, 'Tied', '-|';
tie my $command, 'Tied', 'echo a';
opened(open($in, $mode, $command), $in);
tell_(<$in>);
asked(\$mode, \$command);
== tied, a line for a shell
tie my $mode, 'Tied', '|-';
tie my $command, 'Tied', 'cat >&2;';
opened(open($out, $mode, $command), $out);
print $out "text\n";
closed($out);
asked(\$mode, \$command);
== tied, two
tie my $line, 'Tied', 'echo a |';
opened(open($in, $line), $in);
tell_(<$in>);
asked(\$line);
== tied, files
tie my $mode, 'Tied', '<';
tie my $file, 'Tied', '/dev/null';
opened(open($in, $mode, $file), $in);
opened(open($in, $mode, \'memory'), $in);
asked(\$mode, \$file);
tie my $line, 'Tied', '</dev/null';
opened(open($in, $line), $in);
asked(\$line);
tie my $copy, 'Tied', '>&';
opened(open($in, $copy, 2), $in);
asked(\$copy);
== tied, a fork
tie my $mode, 'Tied', '-|';
tie my $command, 'Tied', '-';
my $pid = open $in, $mode, $command;
POSIX::_exit(3) if !$pid;
closed($in);
asked(\$mode, \$command);
== tied, a mode that changes
{ package Changes; my $n = 0; sub TIESCALAR { return bless [] } sub FETCH { return $n++ ? '<' : '-|' } }
tie my $mode, 'Changes';
program(open($in, $mode, 'echo a'), $in);
== objects
my ($mode, $command, $line) = (Text->new('-|'), Text->new('echo a;'), Text->new('echo b |'));
program(open($in, $mode, $command), $in);
program(open($in, $mode, 'echo', 'c'), $in);
program(open($in, $line), $in);
tell_($mode->{asked}, $command->{asked}, $line->{asked});
== references
tell_(eval { open $in, [], 'x' }, $@ =~ /Unknown open\(\) mode/ ? 1 : $@);
opened(open($in, \'a'), $in);
== undef as a mode
my ($mode, %none);
tell_(eval { open $in, $mode, 'x' }, $@);
tell_(eval { open $in, $none{x}, 'x' }, $@);
tell_(eval { open $in, $mode }, $! + 0);
== undef as a command
my $command;
opened(open($in, '-|', $command), $in);
opened(open($in, '|-', $command, 'x'), $in);
tell_(system($command), $?, system($command, 'x'), $?, `$command`, $?, scalar readpipe $command);
== one argument
our $LINE = 'echo a |';
program(open(LINE), \*LINE);
$LINE = '/dev/null';
opened(open(LINE), \*LINE);
$LINE = undef;
opened(open(LINE), \*LINE);
== tied handles
{ package Opens; sub TIEHANDLE { return bless [] } sub OPEN { shift; return join ' ', 'OPEN', @_ } }
tie *TIED, 'Opens';
our $TIED = 'true |';
tell_(open(TIED), open(TIED, 'true |'), open(TIED, '-|', 'true', 'x'));
== files that are named like pipes
chdir $ARGV[0] or die;
open my $file, '>', 'named|' or die;
close $file;
opened(open($in, $_), $in) for '<named|', ' < named|', '+<named|', '>named|', '+>named|', '>>named|';
unlink 'named|';
== both directions
opened(open($out, '| cat >&2 | '), $out);
print $out "text\n";
closed($out);
opened(open($out, $_), $out), closed($out) for '|true|', '| |', '||', '| exit 3; |';
== two bars
program(open($in, 'echo a ||'), $in);
== nothing, system
for my $errno (0, 5) {
    for my $line ('', ' ', " \n\t") {
        $! = $errno;
        my $status = system $line;
        tell_($status, $?, $! + 0);
    }
}
== nothing, a list
tell_(system('', 'x'), $?, $! + 0);
tell_(system(' ', 'x'), $?, $! + 0);
tell_(system({''} 'x'), $?, $! + 0);
tell_(system({' '} 'x'), $?, $! + 0);
== nothing, a block
my @none;
for my $program ('true', 'false', 'no-such-program', '', '/bin/cat') {
    my $status = system { $program } @none;
    tell_($program, $status, $?, $! + 0);
}
tell_(system {'true'} ());
tell_(system(@none), $?, $! + 0);
== nothing, qx
for my $errno (0, 5) {
    for my $line ('', ' ', "\n") {
        $! = $errno;
        my $out = `$line`;
        tell_($out, $?, $! + 0);
        my @out = `$line`;
        tell_(scalar @out, $?, $! + 0);
    }
}
== nothing, open
for my $line ('', ' ', " \n") {
    program(open($in, '-|', $line), $in);
    opened(open($out, '|-', $line), $out);
    closed($out);
}
opened(open($in, '-|', '', 'x'), $in);
opened(open($in, '-|', ' ', 'x'), $in);
opened(open($in, $_), $in) for '|', ' | ', "| \f ", '';
== nothing, STDIN
program(open(STDIN, '-|', ' '), \*STDIN);
== the command -, in a list
opened(open($in, '-|', '-', 'x'), $in);
== numbers of descriptors
my @handles;
open($handles[$_], $_ % 2 ? '|-' : '-|', 'cat </dev/null') or die for 0 .. 4;
tell_(map { fileno $_, flags($_) } @handles);
closed($_) for @handles;
== not there, in every form
open($in, $_), tell_($! + 0) for 'no-such-program x|', "no-such-program\n|", "|no-such-program\n";
open($in, '-|', $_), tell_($! + 0) for 'no-such-program', '/';
{ no warnings 'exec'; open($in, '-|', 'no-such-program', 'x'); tell_($! + 0) }
tell_(fds());
== of other kinds
my $name = 'NAMED';
no strict 'refs';
program(open($name, '-|', 'echo a'), \*NAMED);
open NAMED, '<', '/dev/null';
program(open(*NAMED{IO}, '-|', 'echo', 'a'), \*NAMED);
{ local *OTHER; opened(open(OTHER, '-|', 'exit 4;'), \*OTHER); }
tell_($?);

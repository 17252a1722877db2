use v5.16;
use warnings;
use Test::More;

use Forkless;
use Forkless::Pty;

my $pty   = Forkless::Pty->new(rows => 30, columns => 100, raise => 1);
my $line  = 'tty; stty size; test $(ps -o sid= -p $$) = $$ && echo s; test -t 1 && echo yes >/dev/tty';
my $child = Forkless->new(cmd => ['sh', '-c', $line], pty => $pty, raise => 1)->spawn;
my $path  = $pty->path;
like($path, qr{\A/dev/pts/\d+\z}, 'it has a path');
is_deeply([$pty->size], [30, 100], 'and a size');
is($pty->read_until_exit($child), "$path\r\n30 100\r\ns\r\nyes\r\n", 'a program has the terminal');
is($?, 0, 'its status');
is($child->wait, 0, 'which the child has, too');

$pty   = Forkless::Pty->new;
$child = Forkless->new(cmd => ['wc', '-l'])->pty($pty)->spawn;
$pty->echo(0);
syswrite $pty->handle, "one\ntwo\n";
ok($pty->send_eof, 'the end is typed');
is($pty->read_until_exit($child), "2\r\n", 'what is typed is read');
$pty->make_raw;
ok(!defined $pty->send_eof && $Forkless::error =~ /\Asend_eof: /, 'raw mode has no end: ' . ($Forkless::error // ''));

$pty   = Forkless::Pty->new;
$child = Forkless->new(cmd => ['sh', '-c', 'test -t 0 && echo out; echo err >&2'], pty => $pty, stdout => 'pipe')->prepare->spawn;
is($pty->read_until_exit($child), "err\r\n", 'streams that are set stay');
is(readline $child->stdout, "out\n", '… and are read');

$child = Forkless->new(cmd => ['sh', '-c', 'kill -9 $$'], pty => Forkless::Pty->new)->spawn;
$child->wait;
is($? & 127, 9, 'the terminal lives as long as the child');

$pty   = Forkless::Pty->new;
$child = Forkless->new(cmd => ['sh', '-c', 'trap "stty size; exit" WINCH; echo; while :; do sleep 0.01; done'], pty => $pty)->spawn;
sysread $pty->handle, my $begun, 10;
$pty->resize(50, 120);
is($pty->read_until_exit($child), "50 120\r\n", 'a new size is told');

ok(!eval { Forkless::Pty->new(rows => 5, colour => 1) } && $@ =~ /no such option: colour at \Q$0\E/, 'an unknown option');
ok(!eval { Forkless->new(cmd => ['true'], pty => 5) } && $@ =~ /not a Forkless::Pty at \Q$0\E/, 'what is none');

done_testing;

use v5.16;
use warnings;
use Config;
use File::Temp 'tempdir';
use Test::More;

# Nothing forks: fork and vfork of libc are replaced with functions that count calls, before perl starts.
my $dir = tempdir(CLEANUP => 1);
open my $source, '>', "$dir/count.c" or die;
print $source <<'C';
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
pid_t fork(void) {
    int file = open(getenv("FORKS"), O_WRONLY | O_APPEND);
    write(file, "fork\n", 5);
    close(file);
    return ((pid_t (*)(void))dlsym(RTLD_NEXT, "fork"))();
}
C
close $source;
my $cc = "$Config{cc} -shared -fPIC -w -o $dir/count.so $dir/count.c -ldl";
if (CORE::system("$cc 2>/dev/null") != 0) {
    diag('SKIPPED: the count of forks because there is no C compiler');
    plan skip_all => 'no compiler';
}

sub forks {
    my ($code) = @_;
    local $ENV{FORKS}      = "$dir/forks";
    local $ENV{LD_PRELOAD} = "$dir/count.so";
    open my $empty, '>', $ENV{FORKS} or die;
    close $empty;
    CORE::system($^X, (map { "-I$_" } @INC), '-e', $code);
    is($?, 0, 'the program runs');
    open my $found, '<', $ENV{FORKS} or die;
    return scalar(my @lines = readline $found);
}

# The started programs do not fork, so every counted call is one of perl.
my $all = <<'PERL';
    system 'true'; system 'true', 'x'; system {'true'} 'x'; system 'exec true;';
    my $out = `true`; my @out = `exec true;`; $out = readpipe 'true';
    open my $in, '-|', 'true', 'x'; close $in; open $in, 'true |'; close $in; open $in, '|-', 'true'; close $in;
    { package Text; use overload '""' => sub { ${ $_[0] } } }
    my ($mode, $line) = map { bless \(my $text = $_), 'Text' } '-|', 'true |';
    open $in, $mode, 'true'; close $in; open $in, $line; close $in; our $LINE = '| true'; open LINE; close LINE;
    open $in, '| true |'; close $in; open $in, '-|', ' '; close $in; open $in, "-|\0", 'true'; close $in;
PERL
cmp_ok(forks($all), '>=', 10, 'perl itself forks, so calls are counted');
is(forks("use Forkless qw(system readpipe open); $all"), 0, 'Forkless does not fork');
is(forks("use Forkless ':everywhere'; $all"), 0, '… everywhere');
cmp_ok(forks("use Forkless ':everywhere'; no Forkless; $all"), '>=', 10, '… but not after "no Forkless"');
is(forks(<<'PERL'), 0, 'the other functions do not fork');
    use Forkless qw(popen open2 open3 capture);
    use Forkless::FastSpawn;
    my $in = popen('-|', 'true') or die; close $in;
    waitpid open2(my $r, my $w, 'true'), 0;
    waitpid open3($w, $r, undef, 'true'), 0;
    capture(['true']) or die;
    waitpid spawn('/bin/true', ['true']), 0;
    waitpid spawnp('true', ['true']), 0;
    Forkless->new(cmd => ['true'], nice => 11, setsid => 1)->status == 0 or die;
PERL

# A file that the kernel refuses with ENOEXEC: the shell is tried, without fork too.
open my $plain, '>', "$dir/plain" or die;
print $plain "exit 0\n";
close $plain;
chmod 0755, "$dir/plain";
is(forks("use Forkless qw(system); system('$dir/plain', 'x') == 0 or die"), 0, 'a file without #! is run without fork');

done_testing;

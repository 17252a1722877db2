use v5.16;
use warnings;
use lib 't/lib';
use Cwd 'getcwd';
use File::Temp 'tempdir';
use Look;
use Test::More;

my $here = getcwd();
my @perl = ($^X, map { '-I' . (m{\A/} ? $_ : "$here/$_") } @INC);

sub answers {
    my ($seed, @words) = @_;
    my $dir = tempdir(CLEANUP => 1);
    chdir $dir or die;
    open my $out, '-|', 'sh', '-c', 'exec "$@" </dev/null 2>&1', 'sh', @perl, @words, "$here/t/lines.pl", $seed, 60 or die "$!";
    my @lines = map { s/\Q$dir\E/DIR/gr } readline $out;
    close $out;
    chdir $here or die;
    # The programs of a line write to standard error concurrently, so the order of these lines is not compared.
    my @cases = map { /(\[.*\]: -?\d+ \d+ .*)/ ? "$1\n" : /(\[.*\]: -1 -1 .*)/ ? "$1\n" : () } @lines;
    return (@cases, "end: $?\n");
}

for my $seed (1 .. (int(5 * ($ENV{FORKLESS_TEST_SCALE} || 1)) || 1)) {
    my @theirs = answers($seed);
    my @ours   = answers($seed, '-MForkless=:everywhere');
    cmp_ok(scalar @theirs, '>', 55, "lines of seed $seed");
    is_deeply(\@ours, \@theirs, '… have the same results as with perl');
}

done_testing;

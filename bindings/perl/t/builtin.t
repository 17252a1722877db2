use v5.16;
use warnings;
use Test::More;

# Runs the same cases with perl's own system and qx and with Forkless, and compares every result.

my @perl = ($^X, map { "-I$_" } @INC);

sub answers {
    my (@words) = @_;
    open my $out, '-|', 'sh', '-c', 'exec "$@" 2>&1', 'sh', @perl, @words, 't/cases.pl' or die "$!";
    my ($text, @cases) = ('');
    while (my $line = readline $out) {
        $line =~ s{/tmp/\w+}{/tmp/…}g;
        $text .= $line;
        next if $line !~ /^== (\[.*?\]):/;
        push @cases, [$1, $text];
        $text = '';
    }
    close $out;
    is($?, 0, "the cases run without an error (@words)");
    is($text, '', 'output of a case');
    return @cases;
}

my @theirs = answers();
my @ours   = answers('-MForkless=:everywhere');
cmp_ok(scalar @theirs, '>', 90, 'there are enough cases');
is(scalar @ours, scalar @theirs, 'both run the same number of cases');
for my $n (0 .. $#theirs) {
    is($ours[$n][1], $theirs[$n][1], $theirs[$n][0]);
}

done_testing;

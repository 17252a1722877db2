use v5.16;
use warnings;
use Test::More;

# Perl's own system and qx are the measure: the same cases by both, and every answer the same.

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
    is($?, 0, "the cases end well (@words)");
    is($text, '', 'with a case');
    return @cases;
}

my @theirs = answers();
my @ours   = answers('-MForkless=:everywhere');
cmp_ok(scalar @theirs, '>', 90, 'there are cases');
is(scalar @ours, scalar @theirs, 'the same number of them');
for my $n (0 .. $#theirs) {
    is($ours[$n][1], $theirs[$n][1], $theirs[$n][0]);
}

done_testing;

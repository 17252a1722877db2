# Lines on the border of what perl gives to a shell, made at random: fuzz.t runs this twice, with perl's own and with Forkless. SEED COUNT.
use v5.16;
no warnings;

my ($seed, $count) = @ARGV;
srand $seed;
$| = 1;
# Nothing that goes on in the background, or could leave the directory.
my @parts = (
    ' ', ' ', '  ', "\n", "\t", "\r", "\x0b", "\x0c", "\xe9", "\x{263a}", 'a', 'A', '1', '9=', '_', '-', '-c', ':', '~', '%', '^', '=', '!', '#',
    '2>&1', ' 2>&1', '2>&1 ', '>&1', ';', "'", '"', '$x', '\\', '|', '{', '}', '(', ')', '*', '?', '[', ']', '<', '>/dev/null', 'exec ',
    '. ', 'X=1 ', 'echo', 'ls', 'true', 'env', 'sh', 'cat', 'false', 'exit 3', '/no/such',
);
for (1 .. $count) {
    my $line = join '', map { $parts[rand @parts] } 1 .. 1 + rand 7;
    $line = (qw(echo ls true sh cat))[rand 5] . " $line" if rand() < 0.6;
    # With this one qx is a fork.
    next if $line eq '-';
    $! = 0;
    my $answer = system $line;
    my $errno  = $answer == -1 ? $! + 0 : 0;
    my $status = $?;
    my $output = `$line`;
    my $name   = $line =~ s/([^ -~])/sprintf '\\x{%x}', ord $1/ger;
    $output =~ s/([^ -~])/sprintf '\\x{%x}', ord $1/ge if defined $output;
    print "[$name]: $answer $status $errno, $? ", $output // 'undef', "\n";
}

use v5.16;
use warnings;
use Test::More;

use Forkless;
use Forkless::Pipeline;

my $pipeline = Forkless::Pipeline->new(['sort'], ['uniq', '-c'], ['sed', 's/ *//'], { raise => 1 });
for my $time (1, 2) {
    is($pipeline->capture(input => "b\na\nb\n")->stdout, "1 a\n2 b\n", "each reads what the one before it writes, run $time");
    is_deeply([$pipeline->statuses], [0, 0, 0], 'their statuses');
}

my $output = Forkless::Pipeline->new(['yes'], ['head', '-n', '1'])->capture;
is($output->stdout, "y\n", 'a program ends when the next one does');
is($output->status, 0,     '… and the last one counts');

my @failing = (['sh', '-c', 'exit 3'], ['true']);
is(Forkless::Pipeline->new(@failing)->status, 0, 'a failure before the last');
my $strict = Forkless::Pipeline->new(@failing, { pipefail => 1 });
is($strict->status, 3 << 8, '… counts with pipefail');
is($?, 3 << 8, '… also in $?');
is_deeply([$strict->statuses], [3 << 8, 0], '… and all are known');

my $both = Forkless->new(cmd => ['sh', '-c', 'echo $X; echo err >&2'], env => { X => 'one' });
$output = Forkless::Pipeline->new($both, Forkless->new(cmd => ['sh', '-c', 'cat; echo err >&2'])->prepare)->capture;
is($output->stdout, "one\n",      'commands with settings, and prepared ones');
is($output->stderr, "err\nerr\n", 'the standard errors of all');

$output = Forkless::Pipeline->new(['sleep', '60'], ['cat'])->capture(timeout => 0.2);
ok($output->timed_out, 'a limit of time is for all');
my @children = Forkless::Pipeline->new(['sh', '-c', 'exit 1'], ['sh', '-c', 'exit 2'])->spawn;
is_deeply([map { $_->wait } @children], [1 << 8, 2 << 8], 'children');

my @none = Forkless::Pipeline->new(['sleep', '60'], ['/no/such/program'])->spawn;
ok(!@none && $Forkless::error =~ m{/no/such/program}, 'one that cannot be started');
is(Forkless::Pipeline->new(['/no/such/program'])->status, -1, '… as a status');
ok(!eval { Forkless::Pipeline->new(['/no/such/program'], { raise => 1 })->status } && $@ =~ m{/no/such/program}, '… thrown');
for my $wrong ([], [{ pipefail => 1 }], [['true'], { colour => 1 }], ['true']) {
    ok(!eval { Forkless::Pipeline->new(@$wrong); 1 } && $@ =~ / at \Q$0\E/, "wrong: $@");
}
is(waitpid(-1, 1), -1, 'nothing is left');

done_testing;

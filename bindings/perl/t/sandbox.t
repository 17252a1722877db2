use v5.16;
use warnings;
use Errno qw(ENOENT EOPNOTSUPP);
use File::Temp qw(tempdir);
use Test::More;

use Forkless;
use Forkless::Sandbox;

my $trial = Forkless::Sandbox->new(mode => 'landlock');
if (!$trial) {
    die "$Forkless::error\n" if $Forkless::error->errno != EOPNOTSUPP;
    plan skip_all => "no sandboxes: $Forkless::error";
}

my $place = tempdir(CLEANUP => 1);
chmod 0755, $place;
my ($inside, $outside) = map { "$place/$_" } qw(inside outside);
for my $directory ($inside, $outside) {
    mkdir $directory or die "mkdir: $!";
    chmod 0777, $directory;
}
$ENV{FORKLESS_KEPT}   = 'kept';
$ENV{FORKLESS_SECRET} = 'secret';

sub output_of {
    my ($line, $sandbox) = @_;
    my $command = Forkless->new(cmd => ['sh', '-c', $line], cwd => '/', sandbox => $sandbox) or die "$Forkless::error\n";
    return ($command->capture // die "$Forkless::error\n")->stdout;
}

my $line = "echo 1 > $inside/a && cat $inside/a; (echo 2 > $outside/b || echo refused) 2> /dev/null";
for my $write ($inside, [$inside]) {
    is(output_of($line, { mode => 'landlock', write => $write }), "1\nrefused\n", 'it writes only where it may');
}
my $sandbox = Forkless::Sandbox->new(mode => 'landlock', read => $inside, keep_env => ['FORKLESS_KEPT']);
is(output_of("cat $inside/a; echo \$FORKLESS_KEPT\$FORKLESS_SECRET", $sandbox), "1\nkept\n", 'it reads, and inherits variables by name');
my $set = Forkless->new(cmd => ['sh', '-c', 'grep Seccomp:.2 /proc/self/status'], stdout => 'null')->sandbox($sandbox);
is($set->status, 0, 'as a method');
is($set->prepare->status, 0, 'prepared');
my $spawned = $set->spawn;
is($spawned->wait, 0, 'spawned');

ok(!Forkless::Sandbox->new(mode => 'landlock', write => "$place/none"), 'a missing path');
is($Forkless::error->errno, ENOENT, '… is an error');
like($Forkless::error, qr/none/, '… that names it');
ok(!eval { Forkless::Sandbox->new(mode => 'landlock', write => "$place/none", raise => 1); 1 }, '… or is thrown');
for my $wrong ([], [mode => 'x'], [mode => 'landlock', bind => '.'], [mode => 'landlock', network => 'none']) {
    ok(!eval { Forkless::Sandbox->new(@$wrong); 1 }, "refused: @$wrong");
}
ok(!eval { Forkless->new(cmd => ['true'], sandbox => 1); 1 }, 'no sandbox');
my $refused = Forkless->new(cmd => ['true'], sandbox => $sandbox, inherit_all => 1);
is($refused->status, -1, 'inherit_all');
like($Forkless::error, qr/inherit_all/, '… is refused');

done_testing;

use v5.16;
use warnings;
use Config;
use Errno qw(ENOENT);
use Test::More;
use Time::HiRes qw(sleep);

use Forkless;
use Forkless::Warm;

# The library is installed below the prefix of the header. Users have it where the search finds it.
my ($include) = map { /-I(\S+)/ ? $1 : () } do {
    open my $makefile, '<', 'Makefile' or plan skip_all => 'no Makefile to tell where the library is';
    grep { /^INC = / } readline $makefile;
};
my $library = "$include/../lib/forkless/libforkless_warm.so";
my @where   = -e $library ? (library => $library) : ();
my $trial   = Forkless::Warm->new(@where) or plan skip_all => "no set of warm programs: $Forkless::error";

# With a variable for the loader, which the tests have, launches are cold.
delete @ENV{ grep { /^(?:LD_|MALLOC_)/ } keys %ENV };

my @settings = (
    cmd => ['/bin/sh', '-c', 'echo "$0 $* $VALUE"; pwd; cat; cat /proc/$$/comm; exit 3', 'name', 'one  two'],
    env => { VALUE => 'of this test' }, cwd => '/usr', stdin => 'null', stdout => 'pipe',
);

sub prepared { return Forkless->new(@settings, @_)->prepare // die "$Forkless::error\n" }

# Output and status of a child.
sub seen {
    my ($child) = @_;
    my $text = join '', readline $child->stdout;
    return [$text, $child->wait];
}

# Start the template. The library may have been installed a moment ago, and templates are made of older files only.
sub started {
    my ($warm, $prepared) = @_;
    for (1 .. 400) {
        return 1 if $warm->start($prepared);
        return 0 if $Forkless::error !~ /a moment ago/;
        sleep 0.1;
    }
    return 0;
}

if (!started($trial, Forkless->new(cmd => ['/bin/sh', '-c', 'exit'], warm => $trial)->prepare) && $Forkless::error =~ /needs glibc/) {
    plan skip_all => "no program is warm: $Forkless::error";
}
undef $trial;

my $warm = Forkless::Warm->new(@where) or die "$Forkless::error\n";
my $cold = seen(prepared()->spawn);
is_deeply($cold, ["name one  two of this test\n/usr\nsh\n", 3 << 8], 'a cold launch');

my $command = Forkless->new(@settings, warm => $warm);
my $first   = $command->spawn;
is($first->cold_reason, 'the template was not started yet', 'the first launch is cold');
is_deeply(seen($first), $cold, '… and as without the set');
my $prepared = $command->prepare;
ok(started($warm, $prepared), 'the template starts') or diag $Forkless::error;
for my $way ([$command, 'spawn'], [$command, 'launch'], [$prepared, 'spawn']) {
    my ($object, $method) = @$way;
    my $child = $object->$method;
    is($child->cold_reason, undef, "$method of " . ref($object) . ' is warm');
    like($child->route, qr/template/, '… by its route');
    is_deeply(seen($child), $cold, '… and as a cold one');
}
is($warm->stats->{warm}, 3, 'warm launches are counted');
is(scalar(my @templates = $warm->templates), 1, 'there is one template');

my $never = Forkless->new(@settings, no_new_privs => 1, warm => $warm);
my $child = $never->spawn;
like($child->cold_reason, qr/exec/, 'a setting that exec looks at is cold');
is_deeply(seen($child), $cold, '… and has its effect');
ok(!$warm->start($never->prepare), 'there is no template for it');
like($Forkless::error, qr/exec/, '… and the error has the reason');

# A forked copy launches cold, and its end ends no template.
my ($template) = $warm->templates;
my $pid = fork // die "fork: $!";
if (!$pid) {
    my $child = $prepared->spawn;
    my $good  = ($child->cold_reason // '') =~ /copy/ && !$warm->templates;
    undef $_ for $command, $prepared, $never, $warm;
    require POSIX;
    POSIX::_exit($good ? 0 : 1);
}
waitpid $pid, 0;
is($?, 0, 'a forked copy launches cold');
$child = $prepared->spawn;
is($child->cold_reason, undef, '… and the original warm');
$child->wait;

# The set belongs to the commands, too.
undef $warm;
ok(kill(0, $template), 'the template stays as long as a command uses it');
$child = $prepared->spawn;
is($child->cold_reason, undef, '… which launches warm');
$child->wait;
undef $_ for $command, $prepared, $never;
sleep 0.001 while kill 0, $template;
pass('the template ends with the last of them');

# A crash ends the template.
$warm = Forkless::Warm->new(@where);
my $crash = Forkless->new(cmd => ['/bin/sh', '-c', 'kill -SEGV $$'], warm => $warm)->prepare;
ok(started($warm, $crash), 'a program that will crash has a template');
is($crash->status & 127, 11, '… and crashes');
is_deeply([$warm->templates], [], '… which ends the template');
is($warm->stats->{crashes}, 1, '… and is counted');

# The set of the process: the library is there, or the error says that it is not.
my $one = Forkless->new(cmd => ['true'], warm => 1);
ok($one || $Forkless::error->errno == ENOENT, 'warm => 1 uses the set of the process') or diag $Forkless::error;
ok(Forkless->new(cmd => ['true'], warm => 0)->status == 0, 'warm => 0 changes nothing');
ok(!Forkless::Warm->new(library => '/no/such/library.so'), 'a library that is not there');
is($Forkless::error->errno, ENOENT, '… is an error');
ok(!eval { Forkless::Warm->new(no_such => 1); 1 }, 'an unknown option dies');
ok(!eval { Forkless->new(cmd => ['true'], warm => {}); 1 }, 'something else than a set dies');

done_testing;

use v5.16;
use warnings;
use lib 't/lib';
use Look;
use Test::More;

use Forkless;
use Forkless::WaitSet;

my $fds = open_fds();
{
    my $set = Forkless::WaitSet->new;
    is($set->wait(0), undef, 'nobody there');
    my %expected;
    for my $n (1 .. 20) {
        my $child = Forkless->new(cmd => ['sh', '-c', "exit $n"])->spawn;
        $expected{"value $n"} = $child->pid;
        ok(defined $set->insert($child, "value $n"), "child $n");
        ok(!eval { $child->wait; 1 }, '… is the set\'s');
    }
    is($set->count, 20, 'all in it');
    my $seen = 0;
    while (my ($child, $value) = $set->wait) {
        is(delete $expected{$value}, $child->pid, "$value has its child");
        is("value " . ($child->status >> 8), $value, '… and its status');
        is($? >> 8, $child->status >> 8, '… which is $? too');
        is($child->wait, $child->status, '… and the handle is whole');
        $seen++;
    }
    is($seen, 20, 'all have come');
    my $sleeper = Forkless->new(cmd => ['sleep', '100'])->spawn;
    my $key     = $set->insert($sleeper, 'sleeper');
    is(scalar(my @none = $set->wait(0.05)), 0, 'the time is up');
    my $again = $set->remove($key);
    is($again->wait(0), undef, 'taken out again, it runs');
    $key = $set->insert($again, 'again');
    my $bits = '';
    vec($bits, fileno $set->handle, 1) = 1;
    is(scalar select(my $ready = $bits, undef, undef, 0), 0, 'the handle is not readable');
    ok($set->signal($key, 'TERM'), 'a signal by the key');
    is(scalar select($ready = $bits, undef, undef, 60), 1, 'the handle is readable');
    my ($ended, $value) = $set->wait(0);
    is($value, 'again', 'its end');
    is($?, 15, '… by the signal');
    ok(!eval { $set->signal(12345, 'TERM') }, 'no such key');
    ok(!eval { $set->insert('x'); 1 }, 'no child');
    eval {
        local $SIG{ALRM} = sub { die "alarm\n" };
        $set->insert(Forkless->new(cmd => ['sleep', '100'], kill_on_free => 1)->spawn);
        alarm 1;
        $set->wait;
    };
    is($@, "alarm\n", 'a handler that dies ends the wait');
    is($set->count, 1, '… and the set is whole');
}
select undef, undef, undef, 0.01 while Forkless::reap_orphans() > 0;
is(open_fds(), $fds, 'no descriptor is left');
ok(no_child(), 'no child is left');

done_testing;

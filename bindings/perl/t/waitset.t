use v5.16;
use warnings;
use Errno qw(ECHILD ENOENT);
use lib 't/lib';
use Look;
use Test::More;

use Forkless;
use Forkless::WaitSet;

my $fds = open_fds();
{
    my $set = Forkless::WaitSet->new;
    is($set->wait(0), undef, 'wait of an empty set returns nothing');
    my %expected;
    for my $n (1 .. 20) {
        my $child = Forkless->new(cmd => ['sh', '-c', "exit $n"])->spawn;
        $expected{"value $n"} = $child->pid;
        ok(defined $set->insert($child, "value $n"), "child $n is inserted");
        ok(!eval { $child->wait; 1 }, '… and can no longer be waited for by itself');
    }
    is($set->count, 20, 'count is the number of children');
    my $seen = 0;
    while (my ($child, $value) = $set->wait) {
        is(delete $expected{$value}, $child->pid, "$value is returned with its child");
        is("value " . ($child->status >> 8), $value, '… and its status');
        is($? >> 8, $child->status >> 8, '… which is in $? too');
        is($child->wait, $child->status, '… and the child\'s own wait returns the status');
        $seen++;
    }
    is($seen, 20, 'all children were returned');
    my $sleeper = Forkless->new(cmd => ['sleep', '100'])->spawn;
    my $key     = $set->insert($sleeper, 'sleeper');
    is(scalar(my @none = $set->wait(0.05)), 0, 'wait returns an empty list at the timeout');
    my $again = $set->remove($key);
    is($again->wait(0), undef, 'a removed child still runs');
    $key = $set->insert($again, 'again');
    my $bits = '';
    vec($bits, fileno $set->handle, 1) = 1;
    is(scalar select(my $ready = $bits, undef, undef, 0), 0, 'the handle is not readable before a child has ended');
    ok($set->signal($key, 'TERM'), 'signal takes a key');
    is(scalar select($ready = $bits, undef, undef, 60), 1, 'the handle is readable when a child has ended');
    my ($ended, $value) = $set->wait(0);
    is($value, 'again', 'wait returns its value');
    is($?, 15, '… and its signal');
    $? = 0;
    # A failure may be known already when launch returns.
    SKIP: {
        my $failing = Forkless->new(cmd => ['true'], cwd => '/no/such')->launch or skip 'launch has reported the failure itself', 1;
        $set->insert($failing, 'not executed');
        ($ended, $value) = $set->wait;
        is_deeply([$ended->status, $value, $?, $! + 0], [undef, 'not executed', -1, ENOENT], 'a launched program that was not executed has no status');
    }
    ok(!eval { $set->signal(12345, 'TERM') }, 'an unknown key is refused');
    ok(!eval { $set->insert('x'); 1 }, 'a value that is no child is refused');
    eval {
        local $SIG{ALRM} = sub { die "alarm\n" };
        $key = $set->insert(Forkless->new(cmd => ['sleep', '100'], kill_on_free => 1)->spawn);
        alarm 1;
        $set->wait;
    };
    is($@, "alarm\n", 'a signal handler that dies ends wait');
    is($set->count, 1, '… and the set still has its child');
    eval {
        local $SIG{ALRM} = sub { die "still waiting\n" if !$set->count; $set->remove($key); alarm 2 };
        alarm 1;
        $set->wait;
        alarm 0;
    };
    is($@, '', 'a signal handler that takes the last child out ends wait');

    # The child belongs to this process. A copy of it must not take the end of the child away.
    my $ours = Forkless->new(cmd => ['sh', '-c', 'read -r line; exit 7'], stdin => 'pipe')->spawn;
    my $input = $ours->stdin;
    $set->insert($ours, 'ours');
    my $copy = fork // die "fork: $!";
    if (!$copy) {
        my @taken = (scalar(my @found = $set->wait(0.01)), $! + 0);
        require POSIX;
        POSIX::_exit("@taken" eq join(' ', 0, ECHILD) ? 0 : 1);
    }
    waitpid $copy, 0;
    is($?, 0, 'in a copy from fork, wait sets ECHILD');
    print {$input} "go\n";
    close $input;
    my ($found) = $set->wait;
    is($found->status >> 8, 7, '… and the child is still this process\'s');
}
select undef, undef, undef, 0.01 while Forkless::reap_orphans() > 0;
is(open_fds(), $fds, 'no descriptor is left');
ok(no_child(), 'no child is left');

done_testing;

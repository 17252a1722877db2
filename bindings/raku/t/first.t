# In a process of their own: the first launches of a process also set up the native calls.
use Test;
use Forkless;
use Forkless::Proc::Async;

for 'the first', 'the second', 'the third' -> $which {
    my $end = Forkless::Proc::Async.new('/no/such/program').start;
    isa-ok $end, Promise, "$which launch fails: start returns a promise";
    throws-like { await $end }, X::Forkless, errno => 2, "$which launch fails: the promise has the reason";
}
# 1, or -1 in later Rakudos.
is run('/no/such/program').exitcode, CORE::<&run>('/no/such/program').exitcode, 'run';
is await(Forkless::Proc::Async.new('true').start).exitcode, 0, 'a program that exists';

done-testing;

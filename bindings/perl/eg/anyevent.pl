#!/usr/bin/perl
# Runs ten programs at once in an AnyEvent loop: reads the output of each, waits for each, and has a time limit for all.
use v5.16;
use warnings;
use AnyEvent;
use Forkless;

my $all = AnyEvent->condvar;
for my $n (1 .. 10) {
    my $child = Forkless->new(cmd => ['sh', '-c', "sleep 0.$n; echo program $n"], stdout => 'pipe', kill_on_free => 1)->spawn
        or die "$Forkless::error\n";
    my ($text, %watch) = ('');
    $all->begin;
    $watch{output} = AnyEvent->io(
        fh => $child->stdout, poll => 'r',
        cb => sub { sysread($child->stdout, $text, 4096, length $text) or delete $watch{output} },
    );
    $watch{end} = AnyEvent->io(
        fh => $child->pidfd, poll => 'r',
        cb => sub {
            my $status = $child->wait(0);
            return if !defined $status;
            1 while $watch{output} && sysread $child->stdout, $text, 4096, length $text;
            %watch = ();
            print "pid ", $child->pid, ", status $status: $text";
            $all->end;
        },
    );
}
my $limit = AnyEvent->timer(after => 5, cb => sub { $all->croak('it takes too long') });
$all->recv;

use v5.16;
use warnings;
use IO::Handle ();
use Test::More;

# A program that loads Proc::FastSpawn, with the replacement of that name first in @INC.
use lib 'shim';
use Proc::FastSpawn 1.0;

is(\&Proc::FastSpawn::spawn, \&Forkless::FastSpawn::spawn, 'the replacement is loaded');
is(\&spawn, \&Forkless::FastSpawn::spawn, 'its functions are exported');
waitpid spawn('/bin/true', ['true']), 0;
is($?, 0, 'spawn runs a program');
waitpid Proc::FastSpawn::spawnp(false => ['false']), 0;
is($?, 256, 'spawnp runs a program');
fd_inherit 1;

SKIP: {
    if (!eval { require AnyEvent::Fork }) {
        diag('SKIPPED: AnyEvent::Fork with our functions because it is not installed');
        skip 'no AnyEvent::Fork', 1;
    }
    # AnyEvent::Fork starts perl with Proc::FastSpawn and passes descriptors to it.
    my $done = AnyEvent->condvar;
    my $fork = AnyEvent::Fork->new_exec->eval('sub run { my ($out, @words) = @_; syswrite $out, "@words $$"; }')
        ->send_arg('from the', 'child')->run(run => sub { $done->send(@_) });
    my ($handle) = $done->recv;
    my $text = '';
    $handle->blocking(1);
    1 while sysread $handle, $text, 100, length $text;
    like($text, qr/\Afrom the child \d+\z/, 'AnyEvent::Fork starts perl with the replacement');
}

done_testing;

use v5.16;
use warnings;
use Test::More;

use Forkless;

# Event loops see the end of a child by its pidfd, without a SIGCHLD handler.
sub child {
    my ($code) = @_;
    return Forkless->new(cmd => ['sh', '-c', "sleep 0.05; exit $code"])->spawn;
}

{
    my $child = child(3);
    my $bits  = '';
    vec($bits, fileno $child->pidfd, 1) = 1;
    is(scalar select($bits, undef, undef, 60), 1, 'select returns when the child has ended');
    is($child->wait(0), 3 << 8, '… and wait returns the status');
}

my %loops = (
    'AnyEvent' => sub {
        my ($child) = @_;
        my $done = AnyEvent->condvar;
        my $watch;
        $watch = AnyEvent->io(fh => $child->pidfd, poll => 'r', cb => sub { undef $watch; $done->send($child->wait(0)) });
        return $done->recv;
    },
    'IO::Async::Loop' => sub {
        my ($child) = @_;
        my $loop = IO::Async::Loop->new;
        my $status;
        $loop->watch_io(handle => $child->pidfd, on_read_ready => sub { $status = $child->wait(0); $loop->stop });
        $loop->run;
        $loop->unwatch_io(handle => $child->pidfd, on_read_ready => 1);
        return $status;
    },
    'Mojo::IOLoop' => sub {
        my ($child) = @_;
        my $status;
        my $reactor = Mojo::IOLoop->singleton->reactor;
        $reactor->io($child->pidfd => sub { $status = $child->wait(0); $reactor->remove($child->pidfd); Mojo::IOLoop->stop });
        $reactor->watch($child->pidfd, 1, 0);
        Mojo::IOLoop->start;
        return $status;
    },
);
for my $module (sort keys %loops) {
    SKIP: {
        if (!eval "require $module; 1") {
            diag("SKIPPED: $module because it is not installed");
            skip "no $module", 1;
        }
        is($loops{$module}->(child($_)), $_ << 8, "$module: status $_") for 0, 3;
    }
}

for my $example (glob 'eg/*.pl') {
    next if $example =~ /anyevent/ && !$INC{'AnyEvent.pm'};
    my $output = Forkless->new(cmd => [$^X, (map { "-I$_" } @INC), $example])->capture(timeout => 60, merged => 1);
    my $text   = $output->stdout;
    if ($output->status != 0 && $text =~ /failed to start .*: .*namespace/) {
        diag("SKIPPED: $example because $text");
        next;
    }
    is($output->status, 0, $example) or diag($text);
}

done_testing;

# As calls.py, for Perl: perl calls.pl TURNS
use v5.16;
use warnings;
use Forkless;
use Forkless::Pipeline;
use IPC::Open3 ();
use JSON::PP;
use Time::HiRes 'time';

use constant { PROGRAM => '/bin/true', CALLS => 10 };

my @calls = (
    'qx' => sub { my $out = CORE::readpipe(PROGRAM) },
    'IPC::Open3' => sub {
        my $pid = IPC::Open3::open3(my $in, my $out, undef, PROGRAM);
        my @lines = readline $out;
        waitpid $pid, 0;
    },
    'Forkless capture' => sub { Forkless->new(cmd => [PROGRAM])->capture },
    'Forkless::Pipeline, 2 programs' => sub { Forkless::Pipeline->new([PROGRAM], [PROGRAM])->capture },
);
if (eval { require IPC::Run; 1 }) {
    push @calls, 'IPC::Run' => sub { IPC::Run::run([PROGRAM], '>', \my $out, '2>', \my $err) };
    push @calls, 'IPC::Run, 2 programs' => sub { IPC::Run::run([PROGRAM], '|', [PROGRAM], '>', \my $out) };
}
my %times;
for my $turn (0 .. $ARGV[0]) {
    for (my $at = 0; $at < @calls; $at += 2) {
        for (1 .. CALLS) {
            my $begun = time;
            $calls[$at + 1]->();
            # The first turn only warms up.
            push @{ $times{ $calls[$at] } }, time - $begun if $turn;
        }
    }
}
say encode_json(\%times);

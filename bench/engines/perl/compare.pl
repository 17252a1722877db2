#!/usr/bin/perl
# Ways to launch from perl, in turn in one process: medians, how many times the first of its group each takes, and how many times what it
# took itself in the smallest perl.
#
#     perl -Mblib bench/engines/perl/compare.pl [--mib N]... [--ms MS] PROGRAM
#
# PROGRAM is what is launched: the smaller, the more is seen of the launch. Timed is from before the call until the program has been
# waited for. Each turn launches once with every contestant of a group, in an order that moves on by one; before each timed launch the
# same contestant launches once uncounted, since a fork leaves the pages of its caller to be copied by whoever comes next.
use v5.16;
use warnings;
use Cwd ();
use Getopt::Long;
use POSIX ();
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);

use Forkless ();
use Forkless::FastSpawn ();

my (@mib, $ms) = ();
GetOptions('mib=i' => \@mib, 'ms=i' => \$ms) && @ARGV == 1 or die "usage: $0 [--mib N]... [--ms MS] PROGRAM\n";

my $program = Cwd::abs_path($ARGV[0]) // die "$ARGV[0]: $!\n";
die "$program: no program\n" if !-x $program || -d _;
my ($directory, $name) = $program =~ m{\A(.*)/([^/]+)\z};
@mib = (0, 200, 1024) if !@mib;
$ms //= 1_500;
local $ENV{PATH} = "$directory:$ENV{PATH}";
my $has_original = eval { require Proc::FastSpawn };

# Each checks what came of it.
sub check { return $_[0] == 0 ? 1 : die "the program did not end with 0: $_[0]\n" }

sub wait_for {
    my ($pid) = @_;
    die "not started: $!\n" if !$pid;
    waitpid $pid, 0;
    return check($?);
}

sub core_list { return check(system $program, 'x') }
sub core_line { return check(system "$name x >/dev/null") }
sub core_qx   { my $out = `$program`; return check($?) }
{
    use Forkless qw(system readpipe);
    sub forkless_list { return check(system $program, 'x') }
    sub forkless_line { return check(system "$name x >/dev/null") }
    sub forkless_qx   { my $out = `$program`; return check($?) }
}
my $prepared = Forkless->new(cmd => [$program])->prepare;

my @groups = (
    # Nobody forks between these.
    [ 'alone',
        ['Forkless::FastSpawn, spawnp' => sub { wait_for(Forkless::FastSpawn::spawnp($name, [$name])) }],
        ['system, a list'              => \&forkless_list],
        ['qx'                          => \&forkless_qx],
        ['Forkless->new->status'       => sub { check(Forkless->new(cmd => [$program])->status) }],
        ['a prepared command'          => sub { check($prepared->status) }],
    ],
    [ 'spawn, waitpid',
        ($has_original ? ['Proc::FastSpawn' => sub { wait_for(Proc::FastSpawn::spawn($program, [$name])) }] : ()),
        ['Forkless::FastSpawn' => sub { wait_for(Forkless::FastSpawn::spawn($program, [$name])) }],
    ],
    [ 'spawnp, waitpid',
        ($has_original ? ['Proc::FastSpawn' => sub { wait_for(Proc::FastSpawn::spawnp($name, [$name])) }] : ()),
        ['Forkless::FastSpawn' => sub { wait_for(Forkless::FastSpawn::spawnp($name, [$name])) }],
    ],
    ['system, a list', [perl => \&core_list], [Forkless => \&forkless_list]],
    ['system, a line for a shell', [perl => \&core_line], [Forkless => \&forkless_line]],
    ['qx', [perl => \&core_qx], [Forkless => \&forkless_qx]],
);

sub now { return clock_gettime(CLOCK_MONOTONIC) }

sub median {
    my @sorted = sort { $a <=> $b } @_;
    return $sorted[$#sorted / 2];
}

my $kernel = (POSIX::uname())[2];
my $original = $has_original ? ", Proc::FastSpawn $Proc::FastSpawn::VERSION" : '';
printf "perl %vd, Forkless %s%s, Linux %s\n", $^V, Forkless->VERSION, $original, $kernel;
my ($memory, %small) = ('');
for my $mib (@mib) {
    # Written to, so that there are pages to be copied.
    $memory .= "\1" x (1 << 20) while length $memory < $mib << 20;
    printf "\nperl with %d MiB more\n  %-25s %-27s %11s %8s %8s %7s\n", $mib, '', '', 'median us', 'x first', 'x small', 'n';
    for my $group (@groups) {
        my ($title, @contestants) = @$group;
        my %times;
        my $end = now() + $ms / 1000;
        for (my $turn = 0; $turn < 5 || (now() < $end && $turn < 20_000); $turn++) {
            for my $n (0 .. $#contestants) {
                my ($who, $run) = @{ $contestants[($turn + $n) % @contestants] };
                $run->();
                my $start = now();
                $run->();
                push @{ $times{$who} }, now() - $start;
            }
        }
        my $first;
        for my $contestant (@contestants) {
            my ($who)  = @$contestant;
            my $median = median(@{ $times{$who} });
            $first //= $median;
            my $small = $small{"$group->[0], $who"} //= $median;
            my $count = @{ $times{$who} };
            printf "  %-25s %-27s %11.1f %8.3f %8.2f %7d\n", $title, $who, $median * 1e6, $median / $first, $median / $small, $count;
            $title = '';
        }
    }
}

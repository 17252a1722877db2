#!/usr/bin/perl
# Launches a program time and again from a perl of some size.
#
#     launches.pl WAY COUNT MEBIBYTES PROGRAM
#
# MEBIBYTES is the resident size that the process is brought to; where it is larger already, it stays so. On standard output come the
# wall time of the launches, each until its end is known, in nanoseconds, and the resident size in KiB. Every status is checked.
use v5.16;
use warnings;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);

my ($way, $count, $mib, $program) = @ARGV;
die "usage: $0 WAY COUNT MEBIBYTES PROGRAM\n" if @ARGV != 4;

sub wait_for {
    my ($pid) = @_;
    die "not started: $!\n" if !$pid;
    waitpid $pid, 0;
    return $?;
}

sub by_fork {
    my $pid = fork // die "fork: $!\n";
    if (!$pid) {
        no warnings 'exec';
        exec {$program} $program;
        kill KILL => $$;
    }
    return wait_for($pid);
}

# Perl's own words with Forkless behind them.
sub replaced {
    my ($words) = @_;
    return undef if $way !~ /\Aforkless ./;
    return eval "use Forkless qw(system readpipe); sub { $words }" // die $@;
}

my %ways = (
    'fork'      => \&by_fork,
    'system'    => sub { return system {$program} $program },
    'backticks' => sub { my $out = `$program`; return $? },
    'FastSpawn' => sub { return wait_for(Proc::FastSpawn::spawn($program, [$program])) },
    'forkless'  => sub { return wait_for(Forkless::FastSpawn::spawn($program, [$program])) },
    # Compiled only where they are asked for: elsewhere the module need not be there.
    'forkless system'    => replaced('system {$program} $program'),
    'forkless backticks' => replaced('my $out = `$program`; $?'),
);
require Proc::FastSpawn     if $way eq 'FastSpawn' || $way eq 'fork';
require Forkless::FastSpawn if $way =~ /\Aforkless/;
my $launch = $ways{$way} // die "no such way: $way\n";

sub resident {
    open my $statm, '<', '/proc/self/statm' or die "/proc/self/statm: $!\n";
    return (split ' ', <$statm>)[1] * 4;
}

# As a heap grows: many values, none of them large.
my @memory;
while (resident() < $mib << 10) {
    push @memory, "\1" x 4000 for 1 .. 64;
}

die "status $?\n" if $launch->() != 0;    # what is set up once is not timed
my $start = clock_gettime(CLOCK_MONOTONIC);
for (1 .. $count) {
    die "status $?\n" if $launch->() != 0;
}
printf "%.0f %d\n", (clock_gettime(CLOCK_MONOTONIC) - $start) * 1e9, resident();

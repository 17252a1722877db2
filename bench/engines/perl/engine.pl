# The Perl engine of `forkless bench`: system, backticks, Proc::FastSpawn, IPC::Run, and what the module Forkless has for the first three.
# The protocol is in ../README.md.
use strict;
use warnings;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);

my ($way, @command) = @ARGV;
die "usage: engine.pl [forkless-]system|backticks|fastspawn|ipc-run PROGRAM [ARGS]...; requests at 3, answers at 4\n" unless @command;

# What is opened above $^F is close-on-exec.
open my $requests, '<&=', 3 or die "3: $!\n";
open my $answers, '>&=', 4 or die "4: $!\n";
$_->autoflush for $answers;

# Each returns the wait status, and the time at which the caller had control back where that was before the end. Those in quotes are
# compiled when their module is loaded: below `use Forkless` the same words mean something else.
my %ways = (
    'system' => sub { (system { $command[0] } @command) },
    'backticks' => sub { my $output = `$_[0]`; $? },
    'fastspawn' => 'fastspawn("Proc::FastSpawn")',
    'ipc-run' => sub { IPC::Run::run(\@command); $? },
    'forkless-system' => 'use Forkless "system"; sub { (system { $command[0] } @command) }',
    'forkless-backticks' => 'use Forkless "readpipe"; sub { my $output = `$_[0]`; $? }',
    'forkless-fastspawn' => 'use Forkless::FastSpawn (); fastspawn("Forkless::FastSpawn")',
);
my %modules = ('fastspawn' => 'Proc::FastSpawn', 'ipc-run' => 'IPC::Run');

my $launch = $ways{$way} or die "$way?\n";
my $line = join ' ', map { m{^[\w/.,:=@%+-]+$}a ? $_ : "'" . s/'/'\\''/gr . "'" } @command;
my $version = sprintf '%vd', $^V;
if (my $module = $way =~ /^forkless-/ ? 'Forkless' : $modules{$way}) {
    eval "require $module; 1" or failed($@ =~ /^Can't locate/ ? "$module is not installed" : split /\n/, $@);
    $version .= ",$module-" . $module->VERSION;
}
$launch = eval $launch || failed(split /\n/, $@) unless ref $launch;
my @memory; # kept until the end

print $answers "forkless-engine 2 $version\n";
while (my $request = <$requests>) {
    chomp $request;
    print $answers answer($request), "\n";
}

sub now { int(clock_gettime(CLOCK_MONOTONIC) * 1e9) }

sub fastspawn {
    my ($package) = @_;
    my $spawn = $package->can($command[0] =~ m{/} ? 'spawn' : 'spawnp');
    sub {
        my $pid = $spawn->($command[0], \@command);
        my $held = now();
        return -1 unless $pid;
        waitpid $pid, 0;
        ($?, $held);
    };
}

sub cpu_time {
    my $sum = 0;
    $sum += $_ for times;
    int($sum * 1e9);
}

sub failed {
    print $answers "failed @_\n";
    exit 1;
}

sub answer {
    my ($request) = @_;
    return turn($1, $2, $3) if $request =~ /^turn (\d+) (\d+) (\d+)$/;
    return 'ok' if $request eq 'plain';
    if ($request =~ /^memory (\d+)$/) {
        push @memory, "\1" x (1 << 20) for 1 .. $1;
        return 'ok';
    }
    failed("unknown request $request");
}

sub sample {
    my $start = now();
    my ($status, $held) = $launch->($line);
    my $total = now();
    failed("not launched: $!") if $status == -1;
    failed("the program did not exit with 0 but with " . ($status >> 8) . ", signal " . ($status & 127)) if $status;
    (($held // $total) - $start, $total - $start);
}

sub turn {
    my ($limit, $fewest, $most) = @_;
    sample();
    my ($n, @samples) = (0);
    my $cpu = cpu_time();
    my $start = now();
    while ($n < $most && ($n < $fewest || now() - $start < $limit)) {
        push @samples, sample();
        $n++;
    }
    my $wall = now() - $start;
    join ' ', 'done', $wall, cpu_time() - $cpu, @samples;
}

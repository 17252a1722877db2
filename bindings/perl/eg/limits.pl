#!/usr/bin/perl
# Restricts a program: no new privileges, little memory and CPU time, no network.
use v5.16;
use warnings;
use Forkless;

my $output = Forkless->new(
    cmd          => ['sh', '-c', 'ulimit -v; grep NoNewPrivs /proc/self/status; wc -l </proc/net/route; cat'],
    rlimit       => [['AS', 256 << 20, 256 << 20], ['CPU', 2, 2]],
    no_new_privs => 1,
    unshare      => ['user', 'network'],
    raise        => 1,
)->capture(input => "what it reads\n", timeout => 10, limit => 1 << 20);
print $output->stdout;
printf "status %d, %.1f ms, %d KiB\n", $output->status, 1000 * $output->usage->{wall}, $output->usage->{max_rss_kib};

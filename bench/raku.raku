# Launches a program time and again from a process that grows, and prints how long each launch took until its end was known.
#
#     raku -I bindings/raku/lib bench/raku.raku METHOD LAUNCHES MIB [PROGRAM]
#
# METHOD is Proc::Async or Forkless. MIB of memory are touched first, and a part of a MiB is added before each launch and kept. Prints
# a line for each launch: nanoseconds, and the resident size in KiB after it. Every exit code is checked. FORKLESS_LIBRARY is the path
# of libforkless.so.0.
use Forkless::Proc::Async;

sub resident { '/proc/self/statm'.IO.slurp.words[1] * 4 }

sub MAIN(Str $method, Int $launches, Int $mib, Str $program = '/bin/true') {
    my %classes = 'Proc::Async' => Proc::Async, 'Forkless' => Forkless::Proc::Async;
    die "no such method: $method" unless %classes{$method}:exists;
    my $class = %classes{$method};
    my @kept = (^$mib).map: { my buf8 $part .= allocate(1 +< 20, 1); $part };
    # The first launch loads code, and starts threads.
    await $class.new($program).start for ^20;
    for ^$launches {
        @kept.push(buf8.allocate(16384, 1));
        my $start = now;
        my $status = await $class.new($program).start;
        my $time = now - $start;
        die "exit code {$status.exitcode}, signal {$status.signal}" if $status.exitcode || $status.signal;
        say ($time * 1_000_000_000).Int, ' ', resident();
    }
}

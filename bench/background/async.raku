# Launches a program time and again, and tells how long each took until its end was known.
#
#     raku async.raku WAY COUNT PROGRAM LIBRARY [MIB]
#
# For each line of its input it launches COUNT times and prints a line for each: nanoseconds, and the resident size in KiB after it. So
# several such processes can take turns. Every status is checked. "forkless" calls forkless_spawn
# of LIBRARY, the path of libforkless.so.0, and waits by waitpid(2). "Forkless" is Forkless::Proc::Async of the Raku distribution, which
# finds the library by FORKLESS_LIBRARY; it is loaded only for that method, because it has a thread of its own. The process grows by 16
# KiB before each launch. It begins with MIB mebibytes that have been written to (default: none).
use NativeCall;

my $library = '';
sub forkless_spawn(Str, CArray[Str], Pointer --> int32) is native({ $library }) {*}
sub waitpid(int32, int32 is rw, int32 --> int32) is native {*}
sub malloc(size_t --> Pointer) is native {*}
sub memset(Pointer, int32, size_t --> Pointer) is native {*}

sub resident { '/proc/self/statm'.IO.slurp.words[1] * 4 }

sub MAIN(Str $way, Int $count, Str $program, Str $path, Int $mib = 0) {
    $library = $path;
    memset(malloc($mib +< 20) || die("no memory"), 1, $mib +< 20) if $mib;
    my $argv = CArray[Str].new($program, Str);
    my %ways =
        'Proc::Async' => { (await Proc::Async.new($program).start).exitcode },
        'run' => { run($program).exitcode },
        'forkless' => {
            my int32 $status = 0;
            my $pid = forkless_spawn($program, $argv, Pointer);
            die "not started: $pid" if $pid <= 0;
            die "not waited for" if waitpid($pid, $status, 0) != $pid;
            $status
        };
    if $way eq 'Forkless' {
        require Forkless::Proc::Async;
        my $class = ::('Forkless::Proc::Async');
        %ways<Forkless> = { (await $class.new($program).start).exitcode };
    }
    my @kept;
    my &launch = %ways{$way} // die "no such way: $way";
    while $*IN.get.defined {
        for ^$count {
            @kept.push(buf8.allocate(16384, 1));
            my $start = now;
            my $status = launch();
            my $time = now - $start;
            die "status $status" if $status != 0;
            say ($time * 1_000_000_000).Int, ' ', resident();
        }
        $*OUT.flush;
    }
}

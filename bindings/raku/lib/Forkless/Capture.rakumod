use Forkless::Launch;
use Forkless::Native;
use Forkless::Sandbox;
use Forkless::Waiter;

unit module Forkless::Capture;

constant SIGKILL = 9;
# Seconds until the streams are closed, after a limit of time.
constant REST = 0.1;
constant CHUNK = 65536;
# Chunks of a pipe of 1 MiB, the largest of an ordinary user.
constant MOST = 16;

# What a program has written, and how it has ended.
class Captured is export {
    # A Str, or with :bin a Blob.
    has $.out;
    has $.err;
    # Bytes beyond the limit, which were discarded.
    has Int $.out-cut;
    has Int $.err-cut;
    has Int $.exitcode;
    has Int $.signal;
    has Bool $.timed-out;
    # Another process still had the streams open.
    has Bool $.held-open;
    # How often limits were reached: see the POD.
    has %.limit-events;

    method Bool { !$!exitcode && !$!signal }
}

# One stream, and what is kept of it.
my class Kept {
    has $.fd;
    has $.limit;
    has &.full;
    has buf8 $.bytes .= new;
    has Int $.cut = 0;
    has Promise $.ended .= new;
    has Lock $!lock .= new;
    has Int $!number;
    # Another process has it.
    has Bool $.held = False;

    method start(--> Nil) {
        $!lock.protect: { $!number = waiter().watch($!fd, POLLIN, -> $ { $!lock.protect: { self!read } }) };
    }

    # With the lock. Does not block if poll(2) has found something.
    method !read(--> Nil) {
        return if $!fd < 0;
        my $chunk = buf8.allocate(CHUNK);
        my $count = read($!fd, $chunk, CHUNK);
        if $count <= 0 {
            self!shut;
            return;
        }
        my $fits = $count min ($!limit // Inf) - $!bytes.elems;
        $!bytes.append($chunk.subbuf(0, $fits));
        $!cut += $count - $fits;
        &!full() if $count > $fits && &!full;
    }

    method !shut(--> Nil) {
        waiter().unwatch($!fd, $!number);
        close($!fd);
        $!fd = -1;
        $!ended.keep;
    }

    # Reads what is in the pipe, at most what a large one holds, and closes it.
    method finish(--> Nil) {
        $!lock.protect: {
            for ^MOST {
                my $fds = pollfds($!fd => POLLIN);
                last if $!fd < 0 || poll($fds, 1, 0) <= 0;
                self!read;
            }
            if $!fd >= 0 {
                $!held = True;
                self!shut;
            }
        }
    }

    method content($enc) { $enc ?? $!bytes.decode($enc) !! $!bytes }
}

sub capture(*@args where .so, :$input, Bool :$merge, Bool :$bin, Str:D :$enc = 'utf8-c8', Real :$timeout, :$term-signal = SIGKILL,
        Real :$grace = 0, Real :$linger, UInt :$limit, Bool :$kill-at-limit, :$cwd = $*CWD, :$env, :$arg0, :$sandbox = False, :$settings
        --> Captured) is export {
    # Before the launch, so that no child starts that nothing can wait for.
    waiter();
    my $child = launch(@args[0], ($arg0 // @args[0], |@args[1..*]), $env ?? $env.hash !! %*ENV, $cwd,
        $input.defined ?? Piped !! Null, Piped, $merge ?? Merged !! Piped,
        sandbox => Forkless::Sandbox.of($sandbox), :$settings, own-env => ?$env);
    my &full = { $child.signal(SIGKILL) } if $kill-at-limit;
    my @kept = ($merge ?? (1,) !! (1, 2)).map({ Kept.new(fd => $child.take-fd($_), :$limit, :&full) });
    .start for @kept;
    my $ended = Promise.new;
    if $input.defined {
        my $writer = Writer.new(fd => $child.take-fd(0));
        # Broken if the program does not read it, which it need not.
        $writer.write($input ~~ Blob ?? $input !! (~$input).encode($enc));
        $writer.close;
        $ended.then({ $writer.ended });
    }
    # Last: the thread frees the child's handle.
    on-end($child, -> $status, $failed { $failed.defined ?? $ended.break($failed) !! $ended.keep($status) });
    my $all = Promise.allof($ended, |@kept.map(*.ended));
    my $timer = Promise.new;
    my $alarm = $*SCHEDULER.cue({ $timer.keep }, in => $timeout) if $timeout.defined;
    await Promise.anyof($all, $timer, $linger.defined ?? $ended.then({ await Promise.in($linger) }) !! Promise.new);
    .cancel with $alarm;
    my $timed-out = $ended.status ~~ Planned;
    if $timed-out {
        $child.signal(+$term-signal);
        await Promise.anyof($ended, $grace < 0 ?? Promise.new !! Promise.in($grace));
        $child.signal(SIGKILL);
    }
    my $status;
    my $why;
    {
        CATCH { default { $why = $_ } }
        $status = await $ended;
    }
    await Promise.anyof($all, Promise.in(REST)) unless $linger.defined || $why;
    .finish for @kept;
    .rethrow with $why;
    my @texts = @kept.map(*.content($bin ?? Str !! $enc));
    @texts.push($bin ?? buf8.new !! '') if $merge;
    Captured.new(out => @texts[0], err => @texts[1], out-cut => @kept[0].cut, err-cut => $merge ?? 0 !! @kept[1].cut,
        exitcode => $status +> 8, signal => $status +& 0x7f, :$timed-out, held-open => ?@kept.first(*.held),
        limit-events => $child.limit-events)
}

=begin pod

=head1 NAME

Forkless::Capture - the output of a program, with limits of time and size

=head1 SYNOPSIS

    use Forkless::Capture;

    my $made = capture 'make', '-s', :30timeout, limit => 1_000_000, settings => { :kill-tree };
    say $made.timed-out ?? 'too late' !! $made.out;

=head1 DESCRIPTION

C<capture> runs a program until it has ended and its output streams are closed. Times are in seconds.

=item C<:input>, a Str or Blob: standard input; without it F</dev/null>. C<:merge>: 2>&1.
=item C<:timeout>: then the program gets C<:term-signal> (SIGKILL), and after C<:grace> (0; negative: never) SIGKILL. With the setting
C<kill-tree> all that it has started ends too.
=item C<:limit>: bytes to keep of each stream. The rest is read and discarded; with C<:kill-at-limit> the program is killed.
=item C<:linger>: how long to read after the program's end while another process holds its streams open. Default: until they are
closed, but 0.1 after a timeout. What is in the pipes by then is read in any case.
=item C<:bin>, C<:enc> (C<utf8-c8>), C<:cwd>, C<:env>, C<:arg0>, C<:sandbox> and C<:settings> as for C<run>.

The result has C<out>, C<err>, C<out-cut> and C<err-cut> (bytes that were discarded), C<exitcode>, C<signal>, C<timed-out>,
C<held-open> (the streams were not closed), and with limits such as C<memory-max> C<limit-events>, a hash of C<oom-kills>
(processes that the OOM killer has killed), C<memory-max> and C<tasks-max> (how often they were reached); it is true if the exit code is 0 and no signal has ended the program. Throws C<X::Forkless> if the program cannot be started.

=end pod

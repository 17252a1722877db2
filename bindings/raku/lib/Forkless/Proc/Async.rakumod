use Forkless::Launch;
use Forkless::Native;
use Forkless::Output;
use Forkless::Sandbox;
use Forkless::Waiter;

unit class Forkless::Proc::Async is Proc::Async;

has Lock $!guard .= new;
has Bool $!has-started = False;
has Promise $!ready .= new;
has Promise $!exited .= new;
has $!encoder;
has Output $!stdout;
has Output $!stderr;
has Output $!merge;
# What is bound: a descriptor, or a promise of one.
has $!stdin-from;
has $!stdin-close;
has Int $!stdout-to;
has Int $!stderr-to;
has Child $!child;
has Writer $!writer;
# What the promise of start still waits for: the end of the child and of its streams.
has Int $!awaited = 0;
has &!outcome;
has @!close-after;

# The attribute of Proc::Async can be set, but not changed from here.
submethod TWEAK(:$started, :$sandbox, :$settings, :$pty --> Nil) {
    die 'sandbox, settings and pty: arguments of start' if $sandbox.defined || $settings || $pty.defined;
    $!has-started = ?$started
}

method started(--> Bool) { $!has-started }
method ready(--> Promise) { $!ready }
method pid(--> Promise) { $!ready }

method !output(Str $name, Output $have is rw, Bool $bin, $enc, $translate-nl --> Supply) {
    X::Proc::Async::TapBeforeSpawn.new(handle => $name, proc => self).throw if $!has-started;
    X::Proc::Async::CharsOrBytes.new(handle => $name, proc => self).throw if $have.defined && $have.bin != $bin;
    $have //= Output.new(:$name, :$bin);
    $bin ?? $have.bytes !! $have.chars($enc // self.enc, $translate-nl // self.translate-nl)
}

method !bound(Str $handle, Str $use) { X::Proc::Async::BindOrUse.new(:$handle, :$use, proc => self).throw }

method stdout(Forkless::Proc::Async:D: :$bin, :$enc, :$translate-nl --> Supply) {
    X::Proc::Async::SupplyOrStd.new(proc => self).throw if $!merge;
    self!bound('stdout', 'get the stdout Supply') if $!stdout-to.defined;
    self!output('stdout', $!stdout, ?$bin, $enc, $translate-nl)
}

method stderr(Forkless::Proc::Async:D: :$bin, :$enc, :$translate-nl --> Supply) {
    X::Proc::Async::SupplyOrStd.new(proc => self).throw if $!merge;
    self!bound('stderr', 'get the stderr Supply') if $!stderr-to.defined;
    self!output('stderr', $!stderr, ?$bin, $enc, $translate-nl)
}

method Supply(Forkless::Proc::Async:D: :$bin, :$enc, :$translate-nl --> Supply) {
    X::Proc::Async::SupplyOrStd.new(proc => self).throw if $!stdout || $!stderr;
    self!bound('stdout', 'get the output Supply') if $!stdout-to.defined;
    self!bound('stderr', 'get the output Supply') if $!stderr-to.defined;
    self!output('merge', $!merge, ?$bin, $enc, $translate-nl)
}

proto method bind-stdin($) {*}
multi method bind-stdin(IO::Handle:D $handle --> Nil) {
    self!bound('stdin', 'use :w') if self.w;
    $!stdin-from = $handle.native-descriptor;
    @!close-after.push($handle) if $handle ~~ IO::Pipe;
}
multi method bind-stdin(OutputPipe:D $pipe --> Nil) { self!bind-pipe($pipe) }
multi method bind-stdin(Proc::Async::Pipe:D $pipe --> Nil) { self!bind-pipe($pipe) }
method !bind-pipe($pipe --> Nil) {
    self!bound('stdin', 'use :w') if self.w;
    $!stdin-from = $pipe.native-descriptor;
    $!stdin-close = True;
}

method bind-stdout(IO::Handle:D $handle --> Nil) {
    self!bound('stdout', 'get the stdout Supply') if $!stdout;
    self!bound('stdout', 'get the output Supply') if $!merge;
    $!stdout-to = $handle.native-descriptor;
}

method bind-stderr(IO::Handle:D $handle --> Nil) {
    self!bound('stderr', 'get the stderr Supply') if $!stderr;
    self!bound('stderr', 'get the output Supply') if $!merge;
    $!stderr-to = $handle.native-descriptor;
}

method start(Forkless::Proc::Async:D: :$scheduler = $*SCHEDULER, :$ENV, :$cwd = $*CWD, :$sandbox = False, :$settings, :$pty --> Promise) {
    my $inside = Forkless::Sandbox.of($sandbox);
    $!guard.protect: {
        X::Proc::Async::AlreadyStarted.new(proc => self).throw if $!has-started;
        .claim with $pty;
        $!has-started = True;
    }
    my %env := $ENV ?? $ENV.hash !! %*ENV;
    my %inside = sandbox => $inside, :$settings, :$pty, own-env => ?$ENV;
    return self!launch($scheduler, %env, $cwd, |%inside) unless $!stdin-from ~~ Promise;
    start {
        my $why;
        {
            CATCH { default { $why = $_ } }
            $!stdin-from = await $!stdin-from;
        }
        await $why.defined ?? self!failed($why, $!exited.vow, $scheduler, $pty) !! self!launch($scheduler, %env, $cwd, |%inside);
    }
}

# Nothing was started: all that waits for the child, or for its output, ends.
method !failed($why, $vow, $scheduler, $pty --> Promise) {
    .failed($why, $scheduler) for ($!stdout, $!stderr, $!merge, $pty).grep(*.defined);
    $!ready.break($why);
    $vow.break($why);
    $!exited
}

method !launch($scheduler, %env, $cwd, :$pty, *%inside --> Promise) {
    my $vow = $!exited.vow;
    my @outputs;
    @outputs.push($!stdout => 1) if $!stdout;
    @outputs.push($!merge => 1) if $!merge;
    @outputs.push($!stderr => 2) if $!stderr;
    my $is-tapped = $pty.defined && $pty.is-tapped;
    $!awaited = 1 + @outputs + $is-tapped;
    my Int @descriptors;
    my &settled = {
        if $!guard.protect({ --$!awaited }) == 0 {
            # Closing another process's pipe may wait for that process.
            if @!close-after {
                $scheduler.cue({ .close for @!close-after; &!outcome() });
            }
            else {
                &!outcome();
            }
        }
    };
    my $why;
    {
        # No `return` here: while it unwinds, the first native call of a LEAVE phaser replaces the value.
        CATCH { default { $why = $_ } }
        # Before the launch, so that no child starts that nothing can wait for.
        waiter();
        $!child = launch(self.path, self.args, %env, $cwd,
            self.w ?? Piped !! $!stdin-from,
            $!merge || $!stdout ?? Piped !! $!stdout-to,
            $!merge ?? Merged !! $!stderr ?? Piped !! $!stderr-to, :$pty, |%inside);
        # All before the thread knows the child, which it frees at the child's end.
        $!writer = Writer.new(fd => $!child.take-fd(0)) if self.w;
        @descriptors = @outputs.map({ $!child.take-fd(.value) });
        on-end($!child, -> $status, $failed {
            .ended for ($!writer, $pty).grep(*.defined);
            &!outcome = $failed.defined
                ?? { $vow.break($failed) }
                !! {
                    $vow.keep(Proc.new(exitcode => $status +> 8, signal => $status +& 0x7f, command => self.command))
                };
            settled();
        });
    }
    self!close-bound;
    return self!failed($why, $vow, $scheduler, $pty) with $why;
    for @outputs.kv -> $n, (:key($output), :value($)) {
        $output.started(@descriptors[$n], $scheduler, &settled);
    }
    .started($scheduler, $is-tapped ?? &settled !! { Nil }) with $pty;
    $!ready.keep($!child.pid);
    $!exited
}

# Closes our copy of another process's output, which the child has as its input, so that the other process is told when
# nothing reads it any more.
method !close-bound {
    close($!stdin-from) if $!stdin-close && $!stdin-from ~~ Int:D;
    $!stdin-close = False;
}

method !writer(Str $method --> Writer) {
    X::Proc::Async::OpenForWriting.new(:$method, proc => self).throw unless self.w;
    X::Proc::Async::MustBeStarted.new(:$method, proc => self).throw unless $!has-started;
    # A process that could not be started, or whose standard input is not yet known.
    $!writer // Writer.new(fd => -1)
}

method write(Forkless::Proc::Async:D: Blob:D $data, :$scheduler --> Promise) { self!writer('write').write($data) }

method print(Forkless::Proc::Async:D: Str() $text, :$scheduler --> Promise) {
    my $writer = self!writer('print');
    $!encoder //= Encoding::Registry.find(self.enc).encoder(translate-nl => self.translate-nl);
    $writer.write($!encoder.encode-chars($text))
}

method put(Forkless::Proc::Async:D: \value, |named --> Promise) {
    self!writer('put');
    self.print(value.join ~ "\n", |named)
}

method say(Forkless::Proc::Async:D: \value, |named --> Promise) {
    self!writer('say');
    self.print(value.gist ~ "\n", |named)
}

method close-stdin(Forkless::Proc::Async:D: --> True) { self!writer('close-stdin').close }

proto method kill(|) {*}
multi method kill(Forkless::Proc::Async:D: Signal:D $signal = SIGHUP) { self!kill($signal.value) }
multi method kill(Forkless::Proc::Async:D: Int:D $signal) { self!kill($signal) }
multi method kill(Forkless::Proc::Async:D: Str:D $signal) { self!kill($*KERNEL.signal($signal)) }
method !kill(Int $signal --> Nil) {
    X::Proc::Async::MustBeStarted.new(method => 'kill', proc => self).throw unless $!has-started;
    .signal($signal) with $!child;
}

=begin pod

=head1 NAME

Forkless::Proc::Async - Proc::Async without fork

=head1 SYNOPSIS

    use Forkless::Proc::Async;

    my $sort = Forkless::Proc::Async.new('sort', :w);
    $sort.stdout.tap({ .print });
    my $end = $sort.start;
    await $sort.print("b\na\n");
    $sort.close-stdin;
    say (await $end).exitcode;

=head1 DESCRIPTION

A subclass of C<Proc::Async> with the same methods: C<new>, C<stdout>, C<stderr>, C<Supply>, C<start>, C<ready>, C<pid>, C<print>,
C<say>, C<put>, C<write>, C<close-stdin>, C<kill>, C<bind-stdin>, C<bind-stdout>, C<bind-stderr>, C<command>, C<path>, C<args>, C<w>
and C<started>. Wrong use throws the same exceptions, C<X::Proc::Async>.

C<start> returns when the program has been executed, in about the same time for every size of the process. The promise is broken
with C<X::Forkless>, which does C<X::OS>, if it cannot be executed: C<errno> is the error, C<step> what the child was doing.

C<write> never blocks. Its promise is broken if nothing reads the data any more. When the child has ended, its standard input is
closed.

C<kill> of a child that has ended does nothing, even if another process has the pid by then.

=end pod

use Forkless::Launch;
use Forkless::Native;
use Forkless::Sandbox;
use Forkless::Waiter;

unit class Forkless::Proc is Proc;

# An output stream with a pipe.
my class Source {
    has Int $.fd is rw;
    # What the thread of all children has read, if that reads it: both streams, so that neither blocks the child.
    has Channel $.channel is rw;
    # What was read to let the child end, before the user has read it.
    has @.kept;
    has Bool $.at-end is rw = False;
    # The descriptor was given to another process.
    has Bool $.given is rw = False;

    method read(--> Blob) {
        return @!kept.shift if @!kept;
        return buf8.new if $!at-end || $!given || !$!fd.defined;
        my $data = (try $!channel.receive) // buf8.new;
        $!at-end = True unless $data;
        $data
    }

    # Lets the thread of all children read it.
    method leave-to-waiter(--> Nil) {
        my $channel = $!channel = Channel.new;
        on-data($!fd, { $channel.send($_) }, { $channel.close });
        $!fd = -1;
    }

    # Reads it to its end for later.
    method drain(--> Nil) {
        my @all;
        loop {
            my $data = self.read;
            last unless $data;
            @all.push($data);
        }
        @!kept.append(@all);
    }

    method shut(--> Nil) {
        close($!fd) if $!fd.defined && $!fd >= 0;
        $!fd = -1;
    }
}

has $.in-from;
has $.out-to;
has $.err-to;
has Bool $.merged;
has IO::Pipe $!in;
has IO::Pipe $!out;
has IO::Pipe $!err;
has Source $!output;
has Source $!errors;
has Writer $!writer;
has Child $!child;
has @!line;
has $!pid;
# As Proc has it: the exit code in the upper bits, the signal in the lower eight.
has Int $!status;
# Why it was not started.
has Str $!os-error;
has Int $!open = 0;
has Lock $!finishing .= new;
has Promise $!finished;
has Promise $!ended;

# The parameters have other names than those of Proc, which would make pipes of its own.
method new(:$in = '-', :$out = '-', :$err = '-', :$exitcode, :$signal, Bool :$bin, Bool :$chomp = True, Bool :$merge,
        :$command, Str :$enc, Str:D :$nl = "\n", :$sandbox, :$settings) {
    die 'sandbox and settings: arguments of spawn and shell' if $sandbox.defined || $settings;
    self.bless(in-from => $in, out-to => $out, err-to => $err, merged => ?$merge, line => $command,
        code => $exitcode, number => $signal, :$bin, :$chomp, :$enc, :$nl)
}

submethod TWEAK(:$line, :$code, :$number, :$bin, :$chomp, :$enc, :$nl --> Nil) {
    @!line = $line.List if $line;
    $!status = ($code +< 8) +| ($number // 0) if $code.defined;
    my %pipe = :proc(self), :$chomp, :$enc, :$bin;
    if $!in-from === True {
        ++$!open;
        $!in = IO::Pipe.new(|%pipe, nl-out => $nl,
            on-write => { .write($^data) with $!writer },
            on-close => { .close with $!writer; self!closed });
    }
    # As with Proc, a merged stream is a pipe unless it goes to a handle.
    if $!out-to === True || $!merged && $!out-to !~~ IO::Handle:D {
        $!output = Source.new;
        $!out = self!pipe($!output, %pipe, $nl);
    }
    if $!err-to === True && !$!merged {
        $!errors = Source.new;
        $!err = self!pipe($!errors, %pipe, $nl);
    }
}

method !pipe(Source $source, %pipe, $nl --> IO::Pipe) {
    ++$!open;
    IO::Pipe.new(|%pipe, nl-in => $nl,
        on-read => { self!read($source) },
        on-close => {
            # Given to another process: nothing to wait for.
            $source.given ?? so($source.shut || True) !! self!closed
        },
        on-native-descriptor => {
            --$!open unless $source.given;
            $source.given = True;
            $source.fd
        })
}

method !read(Source $source --> Blob) {
    self!share;
    # IO::Pipe has a type object for the end, and asks again after an empty buffer.
    $source.read || buf8
}

# All pipes are read when one is: one that is full would block the child.
method !share {
    $!finishing.protect: {
        for ($!output, $!errors).grep(*.defined) {
            .leave-to-waiter if .fd.defined && !.channel && !.given;
        }
    }
}

method in { $!in }
method out { $!out }
method err { $!err }
method pid { $!pid // Nil }
method command { @!line.List }
method os-error { $!os-error }

method spawn(*@args where .so, :$cwd = $*CWD, :$env, :$arg0, :$sandbox = False, :$settings, :$win-verbatim-args --> Bool:D) {
    @!line = @args.List;
    self!spawn(@args[0], ($arg0 // @args[0], |@args[1..*]), $cwd, $env, :$sandbox, :$settings)
}

method shell($cmd, :$cwd = $*CWD, :$env, :$sandbox = False, :$settings --> Bool:D) {
    @!line = $cmd.List;
    self!spawn('/bin/sh', ('/bin/sh', '-c', $cmd), $cwd, $env, :line, :$sandbox, :$settings)
}

method !spawn($path, @args, $cwd, $env, Bool :$line, :$sandbox, :$settings --> Bool:D) {
    my $inside = Forkless::Sandbox.of($sandbox);
    my $out-fd = $!output ?? Piped !! stream($!out-to);
    my $started = False;
    {
        CATCH {
            when X::OS {
                $!os-error = .os-error;
                # Later Rakudos have the errno there, as libuv gives it.
                $!status = Proc.^can('os-error') && .?errno ?? -.errno !! 0x100;
            }
        }
        waiter();
        $!child = launch($path, @args, $env ?? $env.hash !! %*ENV, $cwd,
            $!in ?? Piped !! stream($!in-from),
            $out-fd,
            $!merged ?? Merged !! $!errors ?? Piped !! stream($!err-to), :$line, sandbox => $inside, :$settings, own-env => ?$env);
        $started = True;
    }
    # The child has a copy. Our pipe of another process's output would hide that nothing reads it.
    $!in-from.close if $!in-from ~~ IO::Pipe:D;
    if $started {
        $!pid = $!child.pid;
        $!writer = Writer.new(fd => $!child.take-fd(0)) if $!in;
        $!output.fd = $!child.take-fd(1) if $!output;
        $!errors.fd = $!child.take-fd(2) if $!errors;
        # At once, so that the child is reaped even if nothing waits for it. Last: the thread frees the child's handle.
        my $vow = ($!ended = Promise.new).vow;
        on-end($!child, -> $status, $failed { $failed.defined ?? $vow.break($failed) !! $vow.keep($status) });
    }
    self!finish unless $!in || $!output || $!errors;
    $started
}

# What a stream without a pipe is: a descriptor, /dev/null, or inherited.
sub stream($where) {
    $where ~~ IO::Handle:D ?? $where.native-descriptor !! $where ~~ Str:D && $where eq '-' ?? Any !! Null
}

method !closed {
    self!finish unless --$!open;
    self
}

# Waits for the end of the streams and of the child. No lock is held meanwhile: a thread that holds one cannot do other
# work while it awaits, and the promise may need it.
method !finish(--> Nil) {
    return if $!status.defined || !$!child;
    my $is-first = False;
    my $finished = $!finishing.protect: { $!finished //= do { $is-first = True; Promise.new } };
    unless $is-first {
        await $finished;
        return;
    }
    self!share;
    .drain unless .given for ($!output, $!errors).grep(*.defined);
    my $status = 0x100;
    {
        CATCH { when X::OS { } }
        $status = await $!ended;
    }
    .ended with $!writer;
    $!status = ($status +> 8 +< 8) +| ($status +& 0x7f);
    $!child = Child;
    $finished.keep;
}

proto method status(|) {*}
multi method status($!status) { }
multi method status(Forkless::Proc:D:) { self!finish; $!status }
method exitcode { self!finish; $!status.defined ?? $!status +> 8 !! Nil }
method signal { self!finish; $!status.defined ?? $!status +& 0xff !! Any }
multi method Numeric(Forkless::Proc:D:) { self.exitcode }
multi method Bool(Forkless::Proc:D:) { self!finish; ($!status // 1) == 0 }

method sink(--> Nil) {
    self!finish;
    X::Proc::Unsuccessful.new(proc => self).throw if $!status;
}

# A process that nothing waits for any more.
submethod DESTROY {
    .shut with $!output;
    .shut with $!errors;
    .close with $!writer;
}

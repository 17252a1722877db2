# Launches: a program with its arguments, environment, working directory and standard streams, as Raku has them.
unit module Forkless::Launch;

use Forkless::Native;
use X::Forkless;

# struct forkless_error
constant ERROR = 512;
constant ENOEXEC = 8;
constant EAGAIN = 11;
constant EINVAL = 22;
constant EMFILE = 24;
constant STEP-CHECK = 101;
# MFD_CLOEXEC
constant CLOEXEC = 1;
# Longer than any route.
constant ROUTE = 256;

# Throws what is in a forkless_error.
sub refuse(Blob $error) is export {
    my $text = $error.subbuf(8);
    my $end = $text.first(0, :k) // $text.elems;
    X::Forkless.new(
        step => $error.read-int32(0),
        errno => $error.read-int32(4),
        os-error => $text.subbuf(0, $end).decode('utf8-c8'),
    ).throw
}

# A string as C has it. In Raku's strings, utf8-c8 stands for bytes that are not UTF-8, such as those of file names.
sub c-string(Str() $text --> Blob) is export {
    X::Forkless.new(step => STEP-CHECK, errno => EINVAL, os-error => "failed to start: NUL in {$text.raku}").throw
      if $text.contains("\0");
    ($text ~ "\0").encode('utf8-c8')
}

# A list of strings as C has it. The strings must outlive it.
sub pointers(@strings --> buf8) is export {
    my $table = buf8.allocate(8 * (@strings + 1));
    $table.write-uint64(8 * $_, address(@strings[$_])) for ^@strings;
    $table
}

# An environment as C has it.
my class Environment {
    # All of it in one string, to be compared.
    has Str $.flat;
    has Blob @.strings;
    has Blob $.table;

    method of(%env --> Environment) {
        my $flat = flatten(%env);
        my Blob @strings = %env.map({ c-string(.key ~ '=' ~ .value) });
        self.new(:$flat, :@strings, table => pointers(@strings))
    }
}

sub flatten(%env --> Str) {
    # With their number, so that a value with a NUL is not taken for two variables.
    my str @parts = ~%env.elems;
    for %env.kv -> $name, $value {
        @parts.push($name);
        @parts.push(~$value);
    }
    @parts.join("\0")
}

# The environment of the last launch. Most launches have the same, and its strings take long to encode.
my Environment $last;

sub environment(%env --> Environment) {
    my $have = $last;
    return $have if $have.defined && $have.flat eq flatten(%env);
    $last = Environment.of(%env)
}

# A running child.
class Child is export {
    has Int $.handle;
    has Int $.pid;
    # How often it reached its limits, from its end on: oom-kills, memory-max and tasks-max. Empty without limits.
    has %.limit-events;
    # Of a line for a shell: what makes the shell's status of the program's.
    has Int $!ending;
    has Lock $!lock .= new;

    submethod TWEAK(:$ending) { $!ending = $ending // 0 }

    # How a line was started: "directly", or why the shell runs it.
    method route(--> Str) {
        my $text = buf8.allocate(ROUTE);
        my $length = forkless_ending_route($!ending, $text, ROUTE);
        $text.subbuf(0, $length min ROUTE - 1).decode
    }

    # Our end of the pipe at the child's 0, 1 or 2. It belongs to the caller.
    method take-fd(Int $number --> Int) { forkless_child_take_fd($!handle, $number) }

    method pidfd(--> Int) { forkless_child_pidfd($!handle) }

    # Sends a signal. A child that has ended is no error: its handle is gone, and its pid may be that of another process.
    method signal(Int $number --> Nil) {
        $!lock.protect: { forkless_child_signal($!handle, $number) if $!handle }
    }

    # The status as of waitpid(2), if the child has ended. Throws if other code has reaped it. For a line, the status of the
    # shell, once its message has room in the pipe of standard error.
    method try-wait(--> Int) {
        my ($status, $error) = buf8.allocate(4), buf8.allocate(ERROR);
        my $result = $!lock.protect: { forkless_child_try_wait($!handle, $status, $error) };
        refuse($error) if $result < 0;
        return Int unless $result;
        my $own = $status.read-int32(0);
        return $own if !$!ending;
        my $translated = forkless_ending_status($!ending, $own, $status, $error);
        return Int if $translated == -EAGAIN;
        refuse($error) if $translated < 0;
        $status.read-int32(0)
    }

    # Frees the handle. A child that runs becomes no zombie: a later launch reaps it.
    method free(--> Nil) {
        $!lock.protect: {
            if $!handle {
                my $events = buf8.allocate(24);
                %!limit-events = <oom-kills memory-max tasks-max> Z=> (^3).map({ $events.read-uint64(8 * $_) })
                    if forkless_child_limit_events($!handle, $events) == 0;
                forkless_child_free($!handle);
            }
            forkless_ending_free($!ending) if $!ending;
            $!handle = $!ending = 0;
        }
    }
}

# Streams of the child that are not inherited are an Int, the descriptor, or one of these.
enum Stream is export <Piped Null Merged>;

# Whether libuv, with which Rakudo launches, runs a file without `#!` by /bin/sh: where it forks, it does; by posix_spawn(3), as from
# version 1.53 on, it does not. It is asked when that first matters.
my Bool $by-shell;

sub asks-libuv(--> Bool) {
    # An executable file without a byte in it.
    my $fd = memfd_create('empty', CLOEXEC);
    my $runs = True;
    {
        CATCH { when X::OS { $runs = !.message.contains("(error code -{ENOEXEC})") } }
        # The shell cannot open it, which is no matter here.
        my $ended = await Proc::Async.new("/proc/self/fd/$fd").start;
    }
    close($fd);
    $runs
}

# Starts the program. @args has argv, with argv[0]. Throws X::Forkless if the program cannot be executed. :line is for a shell with -c
# and a line: the line runs without the shell if that makes no difference. In a sandbox the shell runs it, and only files that the kernel
# knows are programs. :own-env: the variables were given by the caller.
sub launch(Str() $path, @args, %env, Str() $cwd, *@streams, Bool :$line, :$sandbox, :$settings, :$pty, Bool :$own-env --> Child) is export {
    return attempt($path, @args, %env, $cwd, @streams, False, :$sandbox, :$settings, :$pty, :$own-env) if $sandbox;
    my $child;
    {
        CATCH { when X::Forkless { .rethrow if .errno != ENOEXEC || $by-shell.defined } }
        $child = attempt($path, @args, %env, $cwd, @streams, ?$line, :$settings, :$pty);
    }
    return $child if $child;
    $by-shell = asks-libuv;
    attempt($path, @args, %env, $cwd, @streams, ?$line, :$settings, :$pty)
}

sub attempt(Str() $path, @args, %env, Str() $cwd, @streams, Bool $line, :$sandbox, :$settings, :$pty, Bool :$own-env --> Child) {
    my ($place, $error) = buf8.allocate(8), buf8.allocate(ERROR);
    my $program = c-string($path);
    my @words = @args.map(&c-string);
    my $directory = c-string($cwd);
    my $environment = $sandbox ?? Environment !! environment(%env);
    forkless_command_new($program, $place);
    my $command = $place.read-uint64(0);
    LEAVE forkless_command_free($command) if $command;
    for @words.kv -> $n, $word {
        $n ?? forkless_command_arg($command, $word) !! forkless_command_arg0($command, $word);
    }
    $sandbox ?? $sandbox.apply($command, %env, ?$own-env) !! forkless_command_envs($command, $environment.table);
    forkless_command_current_dir($command, $directory);
    # What libuv does, which launches for Proc::Async: an empty signal mask, all signals at their default.
    forkless_command_scripts_by_shell($command, $by-shell && !$sandbox ?? 1 !! 0);
    forkless_command_inherit_signal_mask($command, 0);
    for 1..31 -> $number {
        forkless_command_signal_default($command, $number) unless $number == 9 | 19;
    }
    for @streams.kv -> $number, $stream {
        given $stream {
            when Piped { forkless_command_fd_pipe($command, $number) }
            when Null { forkless_command_fd_null($command, $number) }
            when Merged { forkless_command_fd_dup($command, $number, 1) }
            when Int:D { forkless_command_fd($command, $number, $stream) }
        }
    }
    .apply($command) with $pty;
    if $settings {
        require Forkless::Settings <&set-all>;
        set-all($command, $settings);
    }
    my $ending = buf8.allocate(8);
    my $started = $line
        ?? forkless_command_spawn_line($command, $place, $ending, $error)
        !! forkless_command_spawn($command, $place, $error);
    refuse($error) if $started < 0;
    my $handle = $place.read-uint64(0);
    Child.new(:$handle, pid => forkless_child_pid($handle), ending => $ending.read-uint64(0))
}

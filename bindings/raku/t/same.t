# What Rakudo's own Proc::Async, run, shell and qx do, and what ours do: one table, played with both.
use Test;
use Forkless;
use Forkless::Proc::Async;

# Without the reason, which later Rakudos tell, in the words of the launcher.
sub exception(&code) { (try { code(); 'none' }) // "{$!.^name}: {$!.message.split("\n(OS error")[0]}" }

# Independent of how the data is divided.
sub text($data) { $data ~~ Blob ?? $data.list.map({ "$_ " }).join !! $data }

# What a launch looks like from outside.
sub async($class, @command, :@writes, :$out, :$err, :$merge, :$signal, :%start, |new) {
    my $proc = $class.new(|@command, |new);
    my %seen = :done('');
    with $out { $proc.stdout(|$out).tap({ %seen<out> ~= text($_) }, done => { %seen<done> ~= 'o' }, quit => { %seen<done> ~= 'O' }) }
    with $err { $proc.stderr(|$err).tap({ %seen<err> ~= text($_) }, done => { %seen<done> ~= 'e' }, quit => { %seen<done> ~= 'E' }) }
    with $merge { $proc.Supply(|$merge).tap({ %seen<merge> ~= text($_) }, done => { %seen<done> ~= 'm' }, quit => { %seen<done> ~= 'M' }) }
    my $end = $proc.start(|%start);
    try {
        await $proc.ready;
        %seen<written> = @writes.map({ await $proc."{.key}"(.value) }).eager.List if @writes;
        $proc.close-stdin if $proc.w;
        $proc.kill($signal) with $signal;
    }
    my $status = try await $end;
    my $failed = $! ~~ X::OS;
    # The end of a supply may be told by another thread.
    my $deadline = now + 5;
    sleep 0.01 until %seen<done>.chars == ($out, $err, $merge).grep(*.defined) || now > $deadline;
    %seen<done> = %seen<done>.comb.sort.join;
    %seen<failed> = $failed unless $status;
    with $status { %seen{'exitcode', 'signal', 'command', 'type', 'true'} = .exitcode, .signal, .command, .WHAT.^name, .so }
    %seen<args path w enc> = $proc.args.List, $proc.path, ?$proc.w, $proc.enc;
    %seen.sort.gist
}

my @async =
    'status' => { async($_, ('true',)) },
    'failure' => { async($_, ('false',)) },
    'exit code 255' => { async($_, ('sh', '-c', 'exit 255')) },
    'signal' => { async($_, ('sh', '-c', 'kill -SEGV $$')) },
    'output' => { async($_, ('echo', 'a'), out => \()) },
    'bytes' => { async($_, ('printf', '\303\244\377'), out => \(:bin)) },
    'latin-1' => { async($_, ('printf', '\344'), out => \(:enc<latin-1>)) },
    'its own encoding' => { async($_, ('printf', '\344'), :enc<latin-1>, out => \()) },
    'newlines' => { async($_, ('printf', 'a\r\nb\n'), out => \()) },
    'newlines as they are' => { async($_, ('printf', 'a\r\nb\n'), out => \(:!translate-nl)) },
    'combining characters' => { async($_, ('printf', 'e\314\201'), out => \()) },
    'a carriage return at the end' => { async($_, ('printf', 'a\r'), out => \()) },
    'both streams' => { async($_, ('sh', '-c', 'echo o; echo e >&2'), out => \(), err => \()) },
    'no output' => { async($_, ('true',), out => \(), err => \()) },
    'merged' => { async($_, ('sh', '-c', 'echo o; sleep 0.2; echo e >&2'), merge => \()) },
    'writes' => { async($_, ('cat',), :w, out => \(), writes => [print => 'ä', say => <a b>, put => <a b>, write => buf8.new(65)]) },
    'say of an object' => { async($_, ('cat',), :w, out => \(), writes => [say => { a => 1 }]) },
    'newlines, written' => { async($_, ('od', '-c'), :w, out => \(), writes => [print => "a\r\nb\n"]) },
    'written as latin-1' => { async($_, ('od', '-c'), :w, :enc<latin-1>, out => \(:enc<utf8>), writes => [print => 'ä']) },
    'kill' => { async($_, ('sleep', '1000'), signal => SIGTERM) },
    'kill by number' => { async($_, ('sleep', '1000'), signal => 9) },
    'kill by name' => { async($_, ('sleep', '1000'), signal => 'SIGUSR1') },
    'no such program' => { async($_, ('/no/such/program',)) },
    'no such program in PATH' => { async($_, ('no-such-program',)) },
    'a directory' => { async($_, ('/',)) },
    'a file that is not executable' => { async($_, ('/etc/passwd',)) },
    'no such working directory' => { async($_, ('true',), start => %(cwd => '/no/such/directory')) },
    'working directory' => { async($_, ('pwd',), out => \(), start => %(cwd => '/usr')) },
    'working directory as a path' => { async($_, ('pwd',), out => \(), start => %(cwd => '/usr'.IO)) },
    'a relative program' => { async($_, ('./sh', '-c', 'echo a'), out => \(), start => %(cwd => '/bin')) },
    'environment' => { async($_, ('env',), out => \(), start => %(ENV => { A => 'b' })) },
    'an empty environment' => { async($_, ('sh', '-c', 'test -n "$PATH" && echo has one'), out => \(), start => %(ENV => {})) },
    'PATH of the environment' => { async($_, ('sh', '-c', 'true'), start => %(ENV => { PATH => '/nowhere' })) },
    'arg0' => { async($_, ('sh', '-c', 'echo $0'), :arg0<other>, out => \()) },
    'numbers as arguments' => { async($_, ('echo', 1, 2.5, 'x'.IO), out => \()) },
    'an empty argument' => { async($_, ('printf', '<%s>', '', 'a'), out => \()) },
    'arguments that are not UTF-8' => { async($_, ('printf', buf8.new(0xff, 0x41).decode('utf8-c8')), out => \(:bin)) },
    'a large output' => { async($_, ('sh', '-c', 'seq 1 50000; seq 1 20000 >&2'), out => \(), err => \(:bin)).chars },
    'a script without a first line' => {
        my $script = $*TMPDIR.add("forkless-same-{$*PID}");
        LEAVE $script.unlink;
        $script.spurt("echo script\n");
        $script.chmod(0o755);
        async($_, (~$script,), out => \())
    };

# What `new` takes, and what a process that counts as started answers.
sub made($class, |new) {
    my $proc = $class.new(|new);
    my $start = exception { await $proc.start };
    ($proc.started, $proc.w, $proc.enc, $proc.translate-nl, $proc.arg0, $proc.win-verbatim-args, $proc.path, $proc.args,
        $proc.command, $start).raku
}
@async.push:
    'all parameters' => { made($_, 'true', 'a', :w, :enc<latin-1>, :!translate-nl, :arg0<b>, :win-verbatim-args) },
    'defaults' => { made($_, 'true') },
    'counts as started' => { made($_, 'true', :started) },
    'a list of words' => { made($_, ('true', 'a')) };

for @async -> (:key($name), :value(&play)) {
    is play(Forkless::Proc::Async), play(Proc::Async), "Proc::Async: $name";
}

# Both sets of functions.
my %core = run => &CORE::run, shell => &CORE::shell, qx => &CORE::QX;
my %ours = run => &run, shell => &shell, qx => &QX;

sub look(Proc $proc) {
    my %seen;
    %seen<out> = $proc.out.slurp(:close) if $proc.out;
    %seen<err> = $proc.err.slurp(:close) if $proc.err;
    %seen{'exitcode', 'signal', 'true', 'number', 'command'} = $proc.exitcode, $proc.signal, $proc.so, +$proc, $proc.command;
    %seen<sink> = exception { $proc.sink };
    %seen.sort.gist
}

my @sync =
    'run' => { look(.<run>('echo', 'a', :out)) },
    'exit code' => { look(.<run>('sh', '-c', 'exit 3')) },
    'signal' => { look(.<run>('sh', '-c', 'kill -TERM $$')) },
    'streams' => { look(.<run>('sh', '-c', 'echo a; echo b >&2; exit 2', :out, :err)) },
    'merged' => { look(.<run>('sh', '-c', 'echo a; sleep 0.2; echo b >&2', :merge)) },
    'bytes' => { look(.<run>('printf', 'a\377', :out, :bin)) },
    'encoding' => { look(.<run>('printf', '\344', :out, :enc<latin-1>)) },
    'no such program' => { look(.<run>('/no/such/program')) },
    'no such program with a pipe' => { look(.<run>('/no/such/program', :out)) },
    'no such working directory' => { look(.<run>('true', :cwd</no/such/directory>)) },
    'shell' => { look(.<shell>('echo $((1 + 2)); exit 4', :out)) },
    'shell, no command' => { look(.<shell>('no-such-program 2>/dev/null')) },
    'shell in a directory' => { look(.<shell>('pwd', :out, :cwd</usr>)) },
    'environment' => { look(.<shell>('echo $A', :out, :env{ A => 'b' })) },
    'arg0' => { look(.<run>('sh', '-c', 'echo $0', :out, :arg0<other>)) },
    'no output' => { look(.<shell>('echo a; echo b >&2', :!out, :!err)) },
    'no input' => { look(.<run>('cat', :!in, :out)) },
    'input' => { my $proc = .<run>('cat', :in, :out); $proc.in.print('a'); $proc.in.close; look($proc) },
    'lines' => { .<run>('printf', 'a\nb\n\nc', :out).out.lines.raku },
    'lines with ends' => { .<run>('printf', 'a\nb\n\nc', :out, :!chomp).out.lines.raku },
    'get, words and end' => { my $out = .<run>('printf', 'a\nb c', :out).out; ($out.get, $out.words.List, $out.eof, $out.get).raku },
    'read' => { .<run>('printf', 'abcdef', :out, :bin).out.read(3).raku },
    'separator' => { .<run>('printf', 'a;b;c', :out, :nl<;>).out.lines.raku },
    'a pipe to another' => { look(.<run>('tr', 'a-z', 'A-Z', :in(.<run>('echo', 'abc', :out).out), :out)) },
    'close' => { my $proc = .<run>('echo', 'a', :out); $proc.out.close.so },
    'is open' => { my $proc = .<run>('echo', 'a', :out); my $before = $proc.out.opened; $proc.out.close; ($before, $proc.out.opened).raku },
    'qx' => { .<qx>('echo a; exit 3').raku },
    'qx, bytes' => { .<qx>('printf "a\r\nb\n"').raku },
    'qx, nothing' => { .<qx>('true').raku };

for @sync -> (:key($name), :value(&play)) {
    is play(%ours), play(%core), $name;
}

done-testing;

# Sandboxed launches: what the program sees and may do, its environment and its end. They need user namespaces.
use Test;
use Forkless;
use Forkless::Proc;
use Forkless::Proc::Async;
use Forkless::Capture;
use Forkless::Sandbox;
use X::Forkless;

{
    CATCH {
        when X::Forkless {
            note "SKIPPED: sandboxes in Raku, because {.message}";
            plan skip-all => .message;
            exit;
        }
    }
    Forkless::Sandbox.new.check;
}

my $place = $*TMPDIR.add("forkless-raku-{$*PID}-{(^1_000_000).pick}");
my ($inside, $outside) = $place.add('inside'), $place.add('outside');
for $place, $inside, $outside { .mkdir; .chmod(0o777) }
LEAVE { CORE::<&run>('rm', '-rf', ~$place) }
$outside.add('secret').spurt('secret');
%*ENV<FORKLESS_SECRET> = 'secret';

subtest 'files' => {
    my $line = "echo 1 > $inside/a && cat $inside/a; echo 2 > $outside/b; cat $outside/secret || echo hidden";
    for :write($inside), :write(~$inside), :write([$inside,]) -> $write {
        is run('sh', '-c', $line, :out, :err, :cwd</>, sandbox => %($write)).out.slurp, "1\nhidden\n", $write.raku;
    }
    is shell($line, :out, :err, :cwd</>, sandbox => Forkless::Sandbox.new(write => $inside)).out.slurp, "1\nhidden\n", 'shell';
    nok $outside.add('b').e, 'nothing is written elsewhere';
    is run('sh', '-c', "cat secret; echo 2 > b || echo no", :out, :err, cwd => $outside, sandbox => { read => $outside }).out.slurp,
        "secretno\n", 'read';
    indir $outside, { is run('cat', 'secret', :out, sandbox => { :read<.> }).out.slurp, 'secret', '. is $*CWD' };
    my $hidden = Forkless::Proc.new(:out);
    throws-like { Forkless::Sandbox.new(tasks-max => 'many') }, Exception, message => /'tasks_max must be'/, 'a limit that is none';
    throws-like { Forkless::Sandbox.new(tasks => 1) }, Exception, message => /'no such option'/, 'no such limit';
    nok $hidden.spawn('true', :sandbox, cwd => $outside), 'a hidden directory';
    like $hidden.os-error, /'give the sandbox read'/, 'the remedy';
}

subtest 'other processes' => {
    my $line = '(sleep 0.05; echo late) & echo done';
    is shell($line, :out, :cwd</>, :sandbox).out.slurp, "done\nlate\n", 'have a while to end';
    is shell($line, :out, :cwd</>, sandbox => { :linger(0) }).out.slurp, "done\n", 'or none';
}

subtest 'init' => {
    is shell('echo $$ /proc/[0-9]*; (setsid sleep 600 &) &', :out, :cwd</>, sandbox => { :!init }).out.slurp, "1 /proc/1\n", 'the program is PID 1';
    throws-like { Forkless::Sandbox.new(:!init, :linger(1)) }, X::Forkless, message => /linger/;
}

subtest 'strict' => {
    my $strict = try Forkless::Sandbox.new(:strict);
    my $line = 'cp /bin/true /tmp/true && /tmp/true 2>/dev/null || echo $?';
    if $strict.defined {
        is shell($line, :out, :cwd</>, :sandbox($strict)).out.slurp, "126\n", 'executes nothing that the program has written';
    } else {
        like ~$!, /Landlock/, 'this kernel cannot';
    }
}

subtest 'project' => {
    my $project = $place.add('project');
    for $project, $project.add('.git') { .mkdir; .chmod(0o777) }
    $project.add('.git/config').spurt('old');
    $project.add('.git/config').chmod(0o666);
    my $line = 'echo 1 > a && cat a; echo new > .git/config || cat .git/config';
    is run('sh', '-c', $line, :out, :err, cwd => $project, sandbox => { :$project }).out.slurp, "1\nold", 'what others obey is read-only';
    $line = 'cat .git/config a; echo $?';
    is run('sh', '-c', $line, :out, :err, cwd => $project, sandbox => { :$project, hide => ('**/config', $project.add('a').Str) }).out.slurp, "1\n", 'what is hidden cannot be opened';
}

subtest 'Landlock' => {
    my $sandbox = try Forkless::Sandbox.new(:mode<landlock>, read => $inside);
    with $! -> $why {
        note "SKIPPED: Landlock in Raku, because {$why.message}";
        skip $why.message;
    }
    with $sandbox {
        $inside.add('seen').spurt('seen');
        my $line = "cat $inside/seen; cat $outside/secret || echo no";
        is run('sh', '-c', $line, :out, :err, :cwd</>, :$sandbox).out.slurp, "seenno\n", 'files';
        my $change = "touch $inside/mode && chmod 600 $inside/mode && rm $inside/mode";
        for '', 'change-attributes' -> $name {
            my %options = :mode<landlock>, :write($inside), |($name => True if $name);
            is run('sh', '-c', $change, :err, :cwd</>, sandbox => %options).so, ?$name, "a mode is changed: {$name || 'no'}";
        }
    }
}

subtest 'environment' => {
    %*ENV<LC_FORKLESS> = 'kept';
    my $names = run('env', :out, :cwd</>, :sandbox).out.slurp;
    nok $names.contains('FORKLESS_SECRET'), 'a variable';
    ok $names.contains("LC_FORKLESS=kept\n"), 'one that is kept';
    ok run('env', :out, :cwd</>, sandbox => { :keep-env<FORKLESS_SECRET> }).out.slurp.contains('FORKLESS_SECRET=secret'), 'by name';
    is run('/usr/bin/env', :out, :cwd</>, :sandbox, env => { A => 'b' }).out.slurp, "A=b\n", 'given';
    my $async = Forkless::Proc::Async.new('/usr/bin/env');
    my $text = '';
    $async.stdout.tap({ $text ~= $_ });
    await $async.start(:sandbox, :cwd</>, ENV => { A => 'b' });
    is $text, "A=b\n", 'given to start';
    %*ENV<LC_FORKLESS>:delete;
    # In a process that has inherited them.
    my $program = q:to/END/;
        use Forkless;
        %*ENV<LC_B>:delete;
        %*ENV<LC_C> = 'new';
        print run('/usr/bin/env', :out, :bin, :cwd</>, :sandbox).out.slurp(:close).decode('latin-1');
        END
    my %env = PATH => %*ENV<PATH>, FORKLESS_LIBRARY => %*ENV<FORKLESS_LIBRARY> // '', HOME => $outside,
        LC_A => Blob.new(0xff).decode('utf8-c8'), LC_B => 'b', LC_C => 'old';
    my $lib = $?FILE.IO.parent(2).add('lib');
    my $found = run($*EXECUTABLE, "-I$lib", '-e', $program, :out, :%env).out.slurp(:close);
    is-deeply $found.lines.grep(none(/^PATH/)).sort.List, ('HOME=/tmp', "LC_A=\xff", 'LC_C=new'), 'inherited';
}

subtest 'the end' => {
    is run('sh', '-c', 'exit 7', :cwd</>, :sandbox).exitcode, 7, 'exit code';
    is run('sh', '-c', 'kill -9 $$', :cwd</>, :sandbox).signal, 9, 'signal';
    is run('no-such-program', :cwd</>, :sandbox).so, False, 'no program';
    my $proc = shell 'echo $PPID; echo b >&2; exit 3', :out, :merge, :cwd</>, :sandbox;
    is $proc.out.slurp(:close), "1\nb\n", 'a line: its parent is init';
    is $proc.exitcode, 3, 'its exit code';
    my $cat = run 'cat', :in, :out, :cwd</>, :sandbox;
    $cat.in.print('text');
    $cat.in.close;
    is $cat.out.slurp(:close), 'text', 'input';
    is run('sh', '-c', 'test $PPID = 1', :!sandbox).so, False, 'none';
}

subtest 'network' => {
    sub devices(*%sandbox) { run('cat', '/proc/net/dev', :out, :cwd</>, :%sandbox).out.slurp.lines.elems }
    is devices(:network<host>), '/proc/net/dev'.IO.lines.elems, 'host';
    is devices(:network<none>), 3, 'none: a loopback device';
    is devices(:network<refused>), '/proc/net/dev'.IO.lines.elems, 'refused: no namespace';
    is devices(), 3, 'the default';
}

subtest 'async' => {
    my $sandbox = Forkless::Sandbox.new(write => $inside);
    my @all = (^8).map: -> $n {
        start {
            my $proc = Forkless::Proc::Async.new('sh', '-c', "echo $n > $inside/$n; cat $inside/$n; echo \$PPID");
            my $text = '';
            $proc.stdout.tap({ $text ~= $_ });
            await $proc.start(:$sandbox, :cwd</>);
            $text
        }
    }
    is-deeply await(@all).List, (^8).map({ "$_\n1\n" }).List, 'threads use one';
    my $proc = Forkless::Proc::Async.new('sh', '-c', 'echo ready; exec sleep 600');
    $proc.stdout.tap({ $proc.kill(SIGTERM) });
    is await($proc.start(:sandbox, :cwd</>)).signal, +SIGTERM, 'a signal gets to the program';
}

subtest 'wrong arguments' => {
    throws-like { Forkless::Sandbox.new(:mode<landlock>, :strict) }, X::AdHoc, message => /strict/;
    throws-like { Forkless::Sandbox.new(:mode<landlock>, :!init) }, X::AdHoc, message => /init/;
    throws-like { Forkless::Sandbox.new(:mode<landlock>, :linger(1)) }, X::AdHoc, message => /linger/;
    for Any, Nil, Failure.new('x'), Forkless::Sandbox, 1 -> $wrong {
        my %with = sandbox => $wrong;
        throws-like $_, Exception, message => /'sandbox: expected' | x/, $wrong.^name for
            { run('true', |%with) }, { shell('true', |%with) }, { capture('true', |%with) },
            { Forkless::Proc::Async.new('true').start(|%with) };
    }
    is run('true', :!sandbox).exitcode, 0, 'False: none';
    throws-like { Forkless::Sandbox.new(:other) }, X::AdHoc, message => /'no such option'/;
    throws-like { Forkless::Sandbox.new(:mode<other>) }, X::AdHoc, message => /namespaces/;
    throws-like { Forkless::Sandbox.new(:network<other>) }, X::AdHoc, message => /refused/;
    throws-like { Forkless::Sandbox.new(:mode<landlock>, :network<none>) }, X::AdHoc, message => /needs/;
    throws-like { Forkless::Sandbox.new(:read("a\0b")) }, Exception;
    throws-like { Forkless::Sandbox.new(:read</no/such/path>) }, X::Forkless, errno => 2;
    throws-like { run('true', :sandbox(3)) }, X::AdHoc, message => /expected/;
    throws-like { run('true', :sandbox(Forkless::Sandbox)) }, X::AdHoc, message => /expected/;
    throws-like { Forkless::Proc::Async.new('true', :sandbox) }, X::AdHoc, message => /start/;
    throws-like { Forkless::Proc.new(:sandbox) }, X::AdHoc, message => /spawn/;
}

done-testing;

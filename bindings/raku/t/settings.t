# Settings of the child.
use Test;
use Forkless;
use Forkless::Proc;
use Forkless::Proc::Async;
use Forkless::Sandbox;
use Forkless::Settings;
use X::Forkless;

sub says($line, *%settings) { run('sh', '-c', $line, :out, :%settings).out.slurp(:close).trim }

is says('nice; umask', nice => 12, umask => 0o27), "12\n0027", 'numbers';
is says('grep NoNewPrivs /proc/self/status', :no-new-privs), "NoNewPrivs:\t1", 'a flag';
is says('grep NoNewPrivs /proc/self/status', no_new_privs => False), "NoNewPrivs:\t0", 'no flag, by the name of the other languages';
is says('cat /proc/self/timerslack_ns', timer-slack => 12345), '12345', 'a long number';
is shell('nice', :out, settings => { :9nice }).out.slurp(:close).trim, '9', 'of a line without a shell';
is run('sh', '-c', 'nice', :out, :cwd</>, settings => { :9nice }, sandbox => { :mode<landlock> }).out.slurp(:close).trim, '9', 'in a sandbox'
    if try { Forkless::Sandbox.new(:mode<landlock>).check; True };
{
    my $async = Forkless::Proc::Async.new('nice');
    my $text = '';
    $async.stdout.tap({ $text ~= $_ });
    await $async.start(settings => { :5nice });
    is $text.trim, '5', 'of start';
}
my $denied = Forkless::Proc.new(:out);
nok $denied.spawn('true', settings => { :99nice }), 'a value that is checked at the launch';
like $denied.os-error, /nice/, 'its error';
throws-like { says('true', memory-policy => 'nonsense') }, Exception, message => /'memory-policy cannot be "nonsense"'/, 'a wrong word';
throws-like { says('true', :nonsense) }, Exception, message => /nonsense/, 'an unknown setting';
throws-like { says('true', nice => 'high') }, Exception, message => /nice/, 'no number';
throws-like { Forkless::Proc::Async.new('true', settings => { :5nice }) }, Exception, message => /start/, 'an argument of start';

{
    my $tree = Forkless::Proc::Async.new('sh', '-c', '(setsid sleep 600 & echo $!); sleep 600; sleep 600');
    my $pid = Promise.new;
    $tree.stdout.lines.tap({ $pid.keep($_) });
    my $end = $tree.start(settings => { :kill-tree });
    await Promise.anyof($pid, $end);
    if $end.status ~~ Broken {
        like $end.cause.message, /Landlock/, 'kill-tree needs Landlock';
        note "SKIPPED: {$end.cause.message}";
    }
    else {
        my &runs = -> { my $file = "/proc/{$pid.result}/stat".IO; $file.e && $file.slurp !~~ /')' ' Z'/ };
        ok runs(), 'it runs';
        $tree.kill(SIGKILL);
        is (await $end).signal, 9, 'the end';
        nok runs(), 'kill-tree ends all that was started';
    }
}

done-testing;

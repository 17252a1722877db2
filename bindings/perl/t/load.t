use v5.16;
use warnings;
use Test::More;

# Only modules that are used are loaded, so small programs start fast.
my @perl = ($^X, map { "-I$_" } @INC);

sub loaded {
    my ($code, @words) = @_;
    open my $out, '-|', @perl, @words, '-e', "$code; END { print join ' ', map { s/\\.pm\\z//r } sort keys %INC }" or die;
    local $/;
    my $text = readline $out;
    close $out;
    is($?, 0, "it runs: $code");
    return $text;
}

is(loaded('1', '-MForkless'), 'Forkless XSLoader strict', 'for the module alone');
is(loaded('system "true"; `true`', '-MForkless=:everywhere'), 'Forkless XSLoader strict', 'for perl\'s own functions');
unlike(loaded('my $in = Forkless::popen("-|", "true")', '-MForkless'), qr/Carp|IO|Command|Child|Error/, 'for popen');
unlike(loaded('Forkless->new(cmd => ["true"])->status', '-MForkless'), qr/Carp|IO|Errno|Fcntl|Config|WaitSet/, 'for a command');
is(loaded('Forkless::capture(["true"])->status == 0 or die', '-MForkless') =~ /WaitSet/, '', 'for capture');

# Each module loads the modules that it needs.
for my $code (
    'use Forkless::Command; Forkless::Command->new(cmd => ["true"])->spawn->wait == 0 or die',
    'use Forkless::WaitSet; my $s = Forkless::WaitSet->new; $s->insert(Forkless->new(cmd => ["true"])->spawn); my ($c) = $s->wait; $c or die',
    'use Forkless::Error; defined Forkless->new(cmd => ["/no/such"])->spawn and die; "$Forkless::error" =~ /failed to start/ or die',
    'use Forkless::Child; Forkless::Child::signal_number("TERM") == 15 or die',
    'use Forkless::FastSpawn; waitpid spawn("/bin/true", ["true"]), 0; $? and die',
    'use Forkless qw(capture launch_all); (launch_all(Forkless->new(cmd => ["true"])->prepare))[0]->wait == 0 or die',
    'use Forkless qw(open2); waitpid open2(my $r, my $w, "true"), 0; $? and die',
    'use Forkless; chroot "/nowhere"; my $c = Forkless->new(cmd => ["sh", "-c", "echo x"], stdout => [">", "/dev/null"]); $c->status == 0 or die',
) {
    loaded($code);
}

done_testing;

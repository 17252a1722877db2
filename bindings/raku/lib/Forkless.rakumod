unit module Forkless;

use Forkless::Native;
use Forkless::Proc;
use Forkless::Proc::Async;

our sub library-version(--> Str) { forkless_version() }

sub run(*@args where .so, :$in = '-', :$out = '-', :$err = '-', Bool :$bin, Bool :$chomp = True, Bool :$merge, Str :$enc,
        Str:D :$nl = "\n", :$cwd = $*CWD, :$env, :$arg0, :$win-verbatim-args) is export(:DEFAULT, :run) {
    my $proc := Forkless::Proc.new(:$in, :$out, :$err, :$bin, :$chomp, :$merge, :$enc, :$nl);
    $proc.spawn(@args, :$cwd, :$env, :$arg0);
    $proc
}

sub shell($cmd, :$in = '-', :$out = '-', :$err = '-', Bool :$bin, Bool :$chomp = True, Bool :$merge, Str :$enc,
        Str:D :$nl = "\n", :$cwd = $*CWD, :$env) is export(:DEFAULT, :shell) {
    my $proc := Forkless::Proc.new(:$in, :$out, :$err, :$bin, :$chomp, :$merge, :$enc, :$nl);
    $proc.shell($cmd, :$cwd, :$env);
    $proc
}

# Rakudo compiles qx and qqx to a call of this name, which is looked up where they are written.
sub QX($cmd, :$cwd = $*CWD, :$env) is export(:DEFAULT, :qx) {
    my $proc := Forkless::Proc.new(:out);
    $proc.shell($cmd, :$cwd, :$env);
    $proc.out.slurp(:close)
}

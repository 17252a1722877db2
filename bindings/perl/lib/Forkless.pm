package Forkless;
use v5.16;
use warnings;
use Carp     ();
use Exporter ();
use Symbol   ();

our $VERSION = '0.1.0';

# What failed last: a Forkless::Error.
our $error;

our @ISA       = ('Exporter');
our @EXPORT_OK = qw(open2 open3 popen capture launch_all);

require XSLoader;
XSLoader::load('Forkless', $VERSION);

require Forkless::Error;
require Forkless::Command;
require Forkless::Child;
require Forkless::WaitSet;
require Forkless::Pool;

my %BUILTIN = (system => 1, readpipe => 2);

sub import {
    my ($class, @words) = @_;
    my @functions;
    for my $word (@words) {
        if ($BUILTIN{$word}) {
            # HINT_LOCALIZE_HH: until the end of the block or file that is being compiled.
            $^H |= 0x20000;
            $^H{"Forkless/$word"} = 1;
        }
        elsif ($word eq ':everywhere') {
            _everywhere($_) for values %BUILTIN;
        }
        else {
            push @functions, $word;
        }
    }
    $class->export_to_level(1, $class, @functions) if @functions;
    return;
}

sub unimport {
    my ($class, @words) = @_;
    delete $^H{"Forkless/$_"} for @words ? @words : keys %BUILTIN;
    return;
}

sub new {
    my ($class, @settings) = @_;
    return Forkless::Command->new(@settings);
}

sub capture {
    my ($words, %options) = @_;
    my $command = Forkless::Command->new(cmd => $words) or return;
    return $command->capture(%options);
}

sub launch_all {
    my (@prepared) = @_;
    return map { $_ && $_->_pass_on } _launch_all(@prepared);
}

# As perl's own open with these modes, without fork.
sub popen {
    my ($mode, @command) = @_;
    my $reads = { '-|' => 1, 'r' => 1, '|-' => 0, 'w' => 0 }->{ $mode // '' };
    Carp::croak('popen: the mode is -| or |-')             if !defined $reads;
    Carp::croak('popen: no command')                       if !@command;
    Carp::croak('popen: the command -, a fork, is open\'s') if @command == 1 && $command[0] eq '-';
    my ($handle, $pid) = do { no warnings 'exec'; _popen($reads, @command) };
    return if !defined $handle;
    return wantarray ? ($handle, $pid) : $handle;
}

# A handle that open3 was given, or makes in the caller's variable: one end of a pipe, of which this gives the other.
sub _plug {
    my ($me, $package, $place, $is_input) = @_;
    my $handle = $$place;
    if (!defined $handle || (!ref $handle && $handle eq '')) {
        $handle = Symbol::gensym();
        eval { $$place = $handle; 1 } or $place == \undef or Carp::croak("$me: Modification of a read-only value attempted");
    }
    my $ours = ref $handle ? $handle : Symbol::qualify_to_ref($handle, $package);
    my $theirs;
    my $done = $is_input ? pipe($theirs, $ours) : pipe($ours, $theirs);
    Carp::croak("$me: pipe failed: $!") if !$done;
    return { ours => $ours, theirs => $theirs, fd => fileno $theirs };
}

# "<&HANDLE", ">&3": what the program gets is a copy.
sub _copy {
    my ($me, $package, $name) = @_;
    return { fd => $1, number => $1 } if $name =~ /\A=?(\d+)\z/;
    my $handle = Symbol::qualify_to_ref($name, $package);
    my $fd     = fileno $handle;
    Carp::croak("$me: $name is not open, or has no descriptor") if !defined $fd || $fd < 0;
    return { fd => $fd, handle => $handle };
}

sub _end {
    my ($me, $package, $place, $is_input) = @_;
    return _copy($me, $package, $1) if defined $$place && !ref $$place && ref \$$place ne 'GLOB' && $$place =~ /\A[<>]&(.*)\z/s;
    return _plug($me, $package, $place, $is_input);
}

sub _give_away {
    my ($copy) = @_;
    if (defined $copy->{number}) {
        open my $handle, '<&=', $copy->{number} or return;
        return close $handle;
    }
    return close $copy->{handle};
}

# $places: references to what the caller has for input, output and errors; no reference for errors: they stay where ours go.
sub _open {
    my ($me, $places, @command) = @_;
    my $package = caller 1;
    Carp::croak("$me: the command -, a fork, is IPC::Open3's") if @command == 1 && $command[0] eq '-';
    my ($in, $out, $err) = @$places;
    my $is_same = $err && (!$$err || defined $$out && $$err eq $$out);
    my $input   = _end($me, $package, $in,  1);
    my $output  = _end($me, $package, $out, 0);
    my $errors  = $err && !$is_same ? _end($me, $package, $err, 0) : undef;
    my $fd      = $is_same ? -2 : $errors ? $errors->{fd} : -1;
    my $pid     = do { no warnings 'exec'; _start($input->{fd}, $output->{fd}, $fd, @command) };
    if (!defined $pid) {
        my $errno = $! + 0;
        close $_->{ours} for grep { $_ && $_->{ours} } $input, $output, $errors;
        local $" = ' ';
        $! = $errno;
        Carp::croak("$me: exec of @command failed: $!");
    }
    if (!$input->{ours}) {
        _give_away($input);
    }
    else {
        my $old = select $input->{ours};
        $| = 1;
        select $old;
    }
    return $pid;
}

sub open3 {
    Carp::croak('open3: not enough arguments') if @_ < 4;
    return _open('open3', [\$_[0], \$_[1], \$_[2]], @_[3 .. $#_]);
}

sub open2 {
    Carp::croak('open2: not enough arguments') if @_ < 3;
    return _open('open2', [\$_[1], \$_[0]], @_[2 .. $#_]);
}

1;

package Forkless::Pipe;
use v5.16;
use warnings;
use Forkless ();
use Symbol ();

our $VERSION = '0.1.0';

# As perl's open with these modes, without fork.
sub popen {
    my ($mode, @command) = @_;
    my $reads = { '-|' => 1, 'r' => 1, '|-' => 0, 'w' => 0 }->{ $mode // '' };
    Forkless::_croak('popen: expected the mode -| or |-')       if !defined $reads;
    Forkless::_croak('popen: no command')                       if !@command;
    Forkless::_croak('popen: the command - (a fork) is not supported: use open') if @command == 1 && $command[0] eq '-';
    my ($handle, $pid);
    if (${^TAINT}) {
        # perl's own, for its checks.
        $pid = open $handle, $reads ? '-|' : '|-', @command or return;
    }
    else {
        ($handle, $pid) = Forkless::_popen($reads, @command);
    }
    return if !defined $handle;
    return wantarray ? ($handle, $pid) : $handle;
}

# One end of a pipe as a handle: the caller's, or a new one that is stored in the caller's variable. Returns both ends.
sub _plug {
    my ($me, $package, $place, $is_input) = @_;
    my $handle = $$place;
    if (!defined $handle || (!ref $handle && $handle eq '')) {
        $handle = Symbol::gensym();
        eval { $$place = $handle; 1 } or $place == \undef or Forkless::_croak("$me: Modification of a read-only value attempted");
    }
    my $ours = ref $handle ? $handle : Symbol::qualify_to_ref($handle, $package);
    my $theirs;
    # The program must not inherit our end, which would delay its end of file, even if the end is at a number of 0 to 2.
    local $^F = -1;
    my $done = $is_input ? pipe($theirs, $ours) : pipe($ours, $theirs);
    Forkless::_croak("$me: pipe failed: $!") if !$done;
    return { ours => $ours, theirs => $theirs, fd => fileno $theirs };
}

# "<&HANDLE", ">&3": the program gets a copy of this descriptor.
sub _copy {
    my ($me, $package, $name) = @_;
    return { fd => $1, number => $1 } if $name =~ /\A=?(\d+)\z/;
    my $handle = Symbol::qualify_to_ref($name, $package);
    my $fd     = fileno $handle;
    Forkless::_croak("$me: $name is not open, or has no descriptor") if !defined $fd || $fd < 0;
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
        no warnings 'io';
        open my $handle, '<&=', $copy->{number} or return;
        return close $handle;
    }
    return close $copy->{handle};
}

# $places: references to the caller's arguments for input, output and errors. Without the third, standard error is inherited.
sub _open {
    my ($me, $places, @command) = @_;
    my $package = caller 1;
    Forkless::_croak("$me: the command - (a fork) is not supported: use IPC::Open3") if @command == 1 && $command[0] eq '-';
    my ($in, $out, $err) = @$places;
    my $is_same = $err && (!$$err || defined $$out && $$err eq $$out);
    my $input   = _end($me, $package, $in,  1);
    my $output  = _end($me, $package, $out, 0);
    my $errors  = $err && !$is_same ? _end($me, $package, $err, 0) : undef;
    my $fd      = $is_same ? -2 : $errors ? $errors->{fd} : -1;
    my $pid     = do { no warnings 'exec'; Forkless::_start($input->{fd}, $output->{fd}, $fd, @command) };
    if (!defined $pid) {
        my $errno = $! + 0;
        close $_->{ours} for grep { $_ && $_->{ours} } $input, $output, $errors;
        local $" = ' ';
        $! = $errno;
        Forkless::_croak("$me: exec of @command failed: $!");
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
    Forkless::_croak('open3: not enough arguments') if @_ < 4;
    # For its taint checks.
    if (${^TAINT}) { require IPC::Open3; goto &IPC::Open3::open3 }
    return _open('open3', [\$_[0], \$_[1], \$_[2]], @_[3 .. $#_]);
}

sub open2 {
    Forkless::_croak('open2: not enough arguments') if @_ < 3;
    if (${^TAINT}) { require IPC::Open2; goto &IPC::Open2::open2 }
    return _open('open2', [\$_[1], \$_[0]], @_[2 .. $#_]);
}

1;

__END__

=encoding UTF-8

=head1 NAME

Forkless::Pipe - pipes to and from programs: popen, open2, open3

=head1 SYNOPSIS

    use Forkless qw(popen open2 open3);

    my $list = popen('-|', 'ls', '-l') or die "ls: $!";
    print while <$list>;
    close $list or die "ls: $?";

    my $pid = open3(my $in, my $out, my $err, 'program', 'argument');
    waitpid $pid, 0;

=head1 DESCRIPTION

L<Forkless> exports these functions on request. They do not fork. This module is loaded when one of them is called.

With C<-T> they are perl's C<open>, L<IPC::Open2> and L<IPC::Open3>, which make taint checks and fork.

=head1 FUNCTIONS

=head2 popen

    my $handle = popen('-|', 'ls', '-l') or die "$!";
    my ($input, $pid) = popen('|-', 'cat >/dev/null');

Starts a program and returns a handle to read from it (C<-|>) or to write to it (C<|->), as perl's C<open> with these modes. One string is a
command line, several are a program and its arguments. In list context the pid is returned too. C<close> waits for the program
and sets C<$?>. If the program cannot be started C<popen> returns undef and sets C<$!>.

=head2 open2

    my $pid = open2(my $out, my $in, 'program', 'argument');

As C<open2> of L<IPC::Open2>.

=head2 open3

    my $pid = open3(my $in, my $out, my $err, 'program', 'argument');

As C<open3> of L<IPC::Open3>: it takes handles, names of handles, C<< <&HANDLE >> and C<< >&3 >>, and throws the same exceptions. The command C<->,
which asks for a fork, is refused.

=head1 SEE ALSO

L<Forkless>, L<IPC::Open2>, L<IPC::Open3>, L<perlfunc/open>

=head1 AUTHOR

The forkless maintainers.

=head1 LICENSE

MIT or Apache-2.0, at your option.

=cut

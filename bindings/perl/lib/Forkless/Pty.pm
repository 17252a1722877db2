package Forkless::Pty;
use v5.16;
use warnings;
use Forkless ();
use Forkless::Child;
use Forkless::Error;

our $VERSION = '0.1.0';

sub new {
    my ($class, %how) = @_;
    my ($rows, $columns, $raise) = delete @how{qw(rows columns raise)};
    for my $name (sort keys %how) {
        Forkless::_croak("no such option: $name");
    }
    my $self = $class->_new($rows // 24, $columns // 80) or return Forkless::Error::give({ raise => $raise });
    $self->{raise} = $raise;
    return $self;
}

# A handle of this side, unbuffered. It hangs up when this and the object are closed.
sub handle {
    my ($self) = @_;
    return $self->{handle} if $self->{handle};
    open my $handle, '+<&:unix', $self->_fd or return;
    return $self->{handle} = $handle;
}

sub size { return $_[0]->_size }
sub path { return $_[0]->_path }

for my $name (qw(resize echo make_raw send_eof)) {
    no strict 'refs';
    my $call = "_$name";
    *{$name} = sub { my $self = shift; return defined $self->$call(@_) ? $self : Forkless::Error::give($self) };
}

# What the program writes, until it has ended. Sets $?.
sub read_until_exit {
    my ($self, $child, $linger) = @_;
    my ($text, $status) = $self->_read_until_exit($child, $linger);
    return Forkless::Error::give($self) if !defined $status;
    $? = $child->{status} = $status;
    return $text;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Forkless::Pty - a pseudo-terminal for a program

=head1 SYNOPSIS

    use Forkless;
    use Forkless::Pty;

    my $pty   = Forkless::Pty->new(rows => 24, columns => 80) or die "$Forkless::error\n";
    my $child = Forkless->new(cmd => ['wc', '-l'], pty => $pty)->spawn;
    $pty->echo(0);
    syswrite $pty->handle, "one\ntwo\n";
    $pty->send_eof;
    print $pty->read_until_exit($child);    # 2

=head1 DESCRIPTION

A program with the setting C<pty> starts a session, has this terminal as its controlling terminal, and as those of its standard streams that are
not set otherwise: L<pts(4)>. What it writes must be read: about 12 KiB wait in a terminal, then the program does. One session uses a terminal at a
time. When the object, the handle, and the commands and children that have it are gone, the terminal hangs up.

=head1 METHODS

=head2 new

    my $pty = Forkless::Pty->new(rows => 24, columns => 80);

Returns undef and sets C<$Forkless::error> if there is no F</dev/ptmx>, or no terminal is left. With C<raise>, errors are thrown.

=head2 handle

A handle of this side: what is written is typed, what is read is on the screen. Use C<sysread> and C<syswrite>. When no program has the terminal
open, C<sysread> fails with EIO, and returns no 0.

=head2 read_until_exit($child, $linger)

Reads until the child has ended and all that it wrote has been read, and waits for it. Returns the bytes and sets C<$?>. It reads on for C<$linger>
seconds (default: 0) while other processes have the terminal open. Signal handlers run only afterwards.

=head2 size, resize($rows, $columns)

C<size> returns rows and columns. C<resize> changes them; the programs in the foreground get SIGWINCH.

=head2 echo($on)

Whether typed bytes come back (default: yes).

=head2 make_raw

Passes bytes unchanged and one by one in both directions: L<cfmakeraw(3)>.

=head2 send_eof

Types the end-of-file character, which ends one read of one program.

=head2 path

The path of the program's side.

=head1 SEE ALSO

L<Forkless>, L<Forkless::Command>

=head1 AUTHOR

The forkless maintainers.

=head1 LICENSE

MIT or Apache-2.0, at your option.

=cut

use Forkless::Launch;
use Forkless::Native;
use Forkless::Output;
use Forkless::Waiter;
use X::Forkless;

unit class Forkless::Pty;

# struct forkless_error, and the longest path of a terminal.
constant ERROR = 512;
constant PATH = 64;
constant EIO = 5;
constant F_DUPFD_CLOEXEC = 1030;

has Lock $!lock .= new;
# 0 after the child's end.
has Int $!handle = 0;
# The program's side. Held open until the child's end, so that the output does not end before.
has Int $!follower;
has Writer $!writer;
# Of the output, from the launch on: the child may have ended before `started` is called.
has Int $!reads;
has Output $!output .= new(:name<pty>, :bin);
has Bool $!is-used = False;

submethod BUILD(UInt:D :$rows = 24, UInt:D :$columns = 80 --> Nil) {
    # Before there is a terminal that nothing can wait for.
    waiter();
    my ($place, $error) = buf8.allocate(8), buf8.allocate(ERROR);
    refuse($error) if forkless_pty_open(winsize($rows, $columns), $place, $error) < 0;
    $!handle = $place.read-uint64(0);
    $!follower = forkless_pty_follower($!handle);
    my $fd = fcntl(forkless_pty_fd($!handle), F_DUPFD_CLOEXEC, 0);
    self!check('open', $!follower min $fd);
    $!writer .= new(:$fd);
}

# struct winsize
sub winsize(Int $rows, Int $columns --> buf8) {
    my $size = buf8.allocate(8);
    $size.write-uint16(0, $rows min 65535);
    $size.write-uint16(2, $columns min 65535);
    $size
}

method !check(Str $what, Int $result --> Int) {
    X::Forkless.new(errno => -$result max 0, os-error => "$what: the terminal failed or has ended").throw if $result < 0;
    $result
}

method !call(Str $what, &call --> Int) {
    my $result = $!lock.protect: { $!handle ?? call($!handle) !! -EIO };
    self!check($what, $result)
}

# The handle has one owner.
method clone { self }

# Text comes as soon as it is there: a decoder would hold back the last letter, as the next might combine with it, and with it a prompt.
method Supply(Forkless::Pty:D: :$bin, :$translate-nl = True --> Supply) {
    my $bytes = $!output.bytes;
    return $bytes if $bin;
    my sub text(Blob $whole) {
        my $text = $whole.decode('utf8-c8');
        $translate-nl ?? $text.subst("\r\n", "\n", :g) !! $text
    }
    supply {
        my $rest = buf8.new;
        whenever $bytes {
            my $all = $rest ~ $_;
            my $count = $all.elems - unfinished($all);
            emit text($all.subbuf(0, $count)) if $count;
            $rest = $all.subbuf($count);
            LAST { emit text($rest) if $rest }
        }
    }
}

# How many bytes at the end wait for others: of a letter in UTF-8, and CR, which may belong to a newline.
sub unfinished(Blob $bytes --> Int) {
    for 1 .. ($bytes.elems min 3) -> $n {
        given $bytes[*-$n] {
            return $n == 1 && $_ == 13 ?? 1 !! 0 when * < 0x80;
            return ($_ >= 0xF0 ?? 4 !! $_ >= 0xE0 ?? 3 !! 2) > $n ?? $n !! 0 when * >= 0xC0;
        }
    }
    0
}

method write(Blob:D $data --> Promise) { $!writer.write($data) }
method print(Str() $text --> Promise) { self.write($text.encode('utf8-c8')) }

method size {
    my $size = winsize(0, 0);
    self!call('size', { forkless_pty_size($_, $size) });
    ($size.read-uint16(0), $size.read-uint16(2))
}

method resize(UInt:D $rows, UInt:D $columns --> Nil) {
    self!call('resize', { forkless_pty_resize($_, winsize($rows, $columns)) });
}

method echo(Bool() $on --> Nil) { self!call('echo', { forkless_pty_echo($_, +$on) }) }
method make-raw(--> Nil) { self!call('make-raw', { forkless_pty_make_raw($_) }) }
method send-eof(--> Nil) { self!call('send-eof', { forkless_pty_send_eof($_) }) }

method path(--> Str) {
    my $text = buf8.allocate(PATH);
    self!call('path', { forkless_pty_path($_, $text, PATH) });
    $text.subbuf(0, $text.first(0, :k)).decode
}

# For a launch, with all that follows it.
method claim(--> Nil) {
    my $is-used = $!lock.protect: { my $was = $!is-used; $!is-used = True; $was };
    X::Forkless.new(os-error => 'failed to start: the terminal has been used').throw if $is-used;
}

# A launch may be tried twice.
method apply(Int $command --> Nil) {
    $!reads //= self!call('start', { fcntl(forkless_pty_fd($_), F_DUPFD_CLOEXEC, 0) });
    self!call('start', { forkless_command_pty($command, $_) });
}

method is-tapped(--> Bool) { $!output.is-tapped }

# The child has started. Calls &finished when nothing more comes of it.
method started($scheduler, &finished --> Nil) {
    $!output.started($!reads, $scheduler, &finished);
}

method failed($why, $scheduler --> Nil) {
    close($_) with $!reads;
    self.ended;
    $!output.failed($why, $scheduler);
}

# The child has ended. What it has written is still read.
method ended(--> Nil) {
    $!writer.discard;
    self!free;
}

method !free(--> Nil) {
    $!lock.protect: {
        close($!follower) if $!handle && $!follower >= 0;
        forkless_pty_free($!handle) if $!handle;
        $!handle = 0;
    }
}

submethod DESTROY { self!free; .discard with $!writer }

=begin pod

=head1 NAME

Forkless::Pty - a pseudo-terminal for a program

=head1 SYNOPSIS

    use Forkless::Proc::Async;
    use Forkless::Pty;

    my $pty = Forkless::Pty.new(rows => 24, columns => 80);
    $pty.Supply.tap({ .print });
    my $end = Forkless::Proc::Async.new('sh').start(:$pty);
    await $pty.print("stty size; exit\n");
    await $end;

=head1 DESCRIPTION

C<start(:$pty)> of L<Forkless::Proc::Async> starts a program in a session of its own, with this as its controlling terminal, and as those of its
standard streams that are not set otherwise. A terminal serves one C<start>: after the program's end nothing can be typed, and methods throw
C<X::Forkless>. C<new> throws it if no terminal is left.

=head1 METHODS

=item C<Supply(:$bin, :$translate-nl)>: what is on the screen, as UTF-8, or as bytes. It is C<done> when all that have the terminal open have ended; C<start> waits for
that, if the supply was tapped before. What the program writes must be read: about 12 KiB wait in a terminal, then the program does.
=item C<print($text)>, C<write($blob)>: types it. Each returns a promise, which is broken if the program has ended.
=item C<size>, C<resize($rows, $columns)>: the programs in the foreground get SIGWINCH.
=item C<echo($on)>: whether typed text comes back (default: yes).
=item C<make-raw>: passes bytes unchanged and one by one in both directions, cfmakeraw(3).
=item C<send-eof>: types the end-of-file character, which ends one read of one program. Await what was printed before.
=item C<path>: the path of the program's side, F</dev/pts/N>.

=end pod

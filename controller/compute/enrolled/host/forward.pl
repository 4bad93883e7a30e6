#!/usr/bin/perl
# The only way between the amphora of an enrolled host and the controllers: passes heartbeats (UDP) on to all of them, and
# connections (TCP) to the first that accepts them. The amphora reaches nothing else of the host's network by it.
#   forward.pl ADDRESS FILE
# ADDRESS is where it listens. FILE has lines `udp PORT HOST PORT` and `tcp PORT HOST PORT`: the port to listen on, and where
# that leads. It is read again when it has changed.
use strict;
use warnings;
use Errno qw(EAGAIN EINPROGRESS EINTR EWOULDBLOCK);
use Fcntl qw(F_GETFL F_SETFL O_NONBLOCK);
use Socket qw(:DEFAULT IPPROTO_TCP SO_ERROR TCP_NODELAY inet_pton pack_sockaddr_in6);
use constant {
  DATAGRAM => 65_535,
  # Bytes on their way in one direction of a connection; then its sender has to wait.
  BUFFER => 65_536,
  # An agent opens a few.
  CONNECTIONS => 64,
  # For each controller.
  CONNECT_SECONDS => 4,
  IDLE_SECONDS => 900,
};

$0 = 'krater-forward';
$SIG{PIPE} = 'IGNORE';
my ($address, $file) = @ARGV;
my (%listening, %sockets, $read_at);

sub place {
  my ($host, $port) = @_;
  my $four = inet_pton(AF_INET, $host);
  return (AF_INET, pack_sockaddr_in($port, $four)) if defined $four;
  my $six = inet_pton(AF_INET6, $host);
  return defined $six ? (AF_INET6, pack_sockaddr_in6($port, $six)) : ();
}

sub let_go_on {
  my ($socket) = @_;
  fcntl $socket, F_SETFL, fcntl($socket, F_GETFL, 0) | O_NONBLOCK;
}

# What it could not open; it is said once.
my (%told, @refusals);

sub listen_on {
  my ($kind, $port) = @_;
  my $socket;
  my $is_open = socket($socket, AF_INET, $kind eq 'udp' ? SOCK_DGRAM : SOCK_STREAM, 0)
    && setsockopt($socket, SOL_SOCKET, SO_REUSEADDR, 1)
    && bind($socket, pack_sockaddr_in($port, inet_pton(AF_INET, $address)))
    && ($kind eq 'udp' || listen($socket, 16));
  if (!$is_open) {
    push @refusals, "cannot listen on $address $kind port $port: $!\n" unless $told{"$kind $port"}++;
    return;
  }
  delete $told{"$kind $port"};
  let_go_on($socket);
  return $socket;
}

# Opens what the file has and closes what it has no more.
sub settle {
  # A new file has another inode, also within the second that the time counts.
  my $changed = join ' ', map { $_ // 0 } (stat $file)[1, 7, 9];
  return if defined $read_at && $read_at eq $changed && !grep { !defined $_->{socket} } values %listening;
  $read_at = $changed;
  my %wanted;
  if (open my $lines, '<', $file) {
    while (<$lines>) {
      my ($kind, $port, $host, $there) = /^(udp|tcp) (\d{1,5}) (\S+) (\d{1,5})$/ or next;
      my ($family, $place) = place($host, $there) or next;
      push @{ $wanted{"$kind $port"}{to} }, { family => $family, place => $place };
    }
  }
  for my $key (keys %listening) { delete $listening{$key} unless $wanted{$key} }
  for my $key (keys %wanted) {
    my ($kind, $port) = split / /, $key;
    $listening{$key}{to} = $wanted{$key}{to};
    $listening{$key}{kind} = $kind;
    $listening{$key}{socket} //= listen_on($kind, $port);
  }
  # Whoever reads of a refusal finds the rest open.
  print STDERR splice @refusals;
}

my %outward;

sub pass_datagrams {
  my ($one) = @_;
  for (1 .. 64) {
    defined recv $one->{socket}, my $bytes, DATAGRAM, 0 or last;
    for my $to (@{ $one->{to} }) {
      socket($outward{ $to->{family} }, $to->{family}, SOCK_DGRAM, 0) unless $outward{ $to->{family} };
      my $socket = $outward{ $to->{family} };
      let_go_on($socket);
      send $socket, $bytes, 0, $to->{place};
    }
  }
}

# A connection is two ends; each has what is to be written to it.
sub welcome {
  my ($one) = @_;
  accept my $near, $one->{socket} or return;
  return if keys %sockets >= 2 * CONNECTIONS;
  let_go_on($near);
  setsockopt $near, IPPROTO_TCP, TCP_NODELAY, 1;
  my $a = { socket => $near, text => '', heard => time };
  my $b = { text => '', port => $one, left => [@{ $one->{to} }] };
  $a->{other} = $b;
  $b->{other} = $a;
  $sockets{ fileno $near } = $a;
  reach($b) or end($b);
}

# Connects to the next of the places that are left.
sub reach {
  my ($side) = @_;
  drop($side);
  while ($side->{place} = shift @{ $side->{left} }) {
    my $to = $side->{place};
    socket(my $far, $to->{family}, SOCK_STREAM, 0) or next;
    let_go_on($far);
    setsockopt $far, IPPROTO_TCP, TCP_NODELAY, 1;
    connect $far, $to->{place} or $! == EINPROGRESS or next;
    @$side{qw(socket connecting heard)} = ($far, 1, time);
    return $sockets{ fileno $far } = $side;
  }
  return 0;
}

# The next connections begin where this one was accepted.
sub prefer {
  my ($port, $place) = @_;
  $port->{to} = [$place, grep { $_ != $place } @{ $port->{to} }];
}

sub drop {
  my ($side) = @_;
  return unless $side->{socket};
  delete $sockets{ fileno $side->{socket} };
  close $side->{socket};
  delete $side->{socket};
}

sub end {
  my ($side) = @_;
  drop($_) for $side, $side->{other};
  delete $side->{other}{other};
  delete $side->{other};
}

sub hear {
  my ($side) = @_;
  my $count = sysread $side->{socket}, my $text, BUFFER;
  if (!defined $count) { return $! == EAGAIN || $! == EINTR ? 1 : end($side) }
  $_->{heard} = time for $side, $side->{other};
  if ($count == 0) { $side->{ended} = $side->{other}{closing} = 1 }
  else { $side->{other}{text} .= $text }
  return 1;
}

sub say_on {
  my ($side) = @_;
  if ($side->{connecting}) {
    return reach($side) || end($side) if unpack 'i', getsockopt $side->{socket}, SOL_SOCKET, SO_ERROR;
    $side->{connecting} = 0;
    prefer($side->{port}, $side->{place});
  }
  if (length $side->{text}) {
    my $count = syswrite $side->{socket}, $side->{text};
    if (!defined $count) { return $! == EAGAIN || $! == EINTR ? 1 : end($side) }
    substr $side->{text}, 0, $count, '';
  }
  if ($side->{closing} && !length $side->{text} && !$side->{closed}) {
    shutdown $side->{socket}, 1;
    $side->{closed} = 1;
    end($side) if $side->{ended};
  }
  return 1;
}

while (1) {
  settle();
  my ($readable, $writable) = ('', '');
  for (values %listening) { vec($readable, fileno $_->{socket}, 1) = 1 if $_->{socket} }
  for my $side (values %sockets) {
    my $number = fileno $side->{socket};
    vec($readable, $number, 1) = 1 if !$side->{connecting} && !$side->{ended} && length $side->{other}{text} < BUFFER;
    vec($writable, $number, 1) = 1 if $side->{connecting} || length $side->{text} || $side->{closing} && !$side->{closed};
  }
  my $ready = select $readable, $writable, undef, 2;
  next if $ready < 0;
  for (values %listening) {
    next unless $_->{socket} && vec $readable, fileno $_->{socket}, 1;
    $_->{kind} eq 'udp' ? pass_datagrams($_) : welcome($_);
  }
  for my $number (keys %sockets) {
    my $side = $sockets{$number} or next;
    say_on($side) if vec $writable, $number, 1;
    $side = $sockets{$number} or next;
    hear($side) if !$side->{connecting} && vec $readable, $number, 1;
  }
  for my $side (values %sockets) {
    next unless $side->{socket};
    my $seconds = time - $side->{heard};
    if ($side->{connecting}) { $seconds <= CONNECT_SECONDS || reach($side) || end($side) }
    else { end($side) if $seconds > IDLE_SECONDS }
  }
}

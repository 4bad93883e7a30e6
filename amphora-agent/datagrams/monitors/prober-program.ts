import { callNumber, seccompStatements } from '../../seccomp/launcher.js'
import { PROBER_RULES } from '../../seccomp/rules.js'

/** The most that a probe may read of an answer. */
export const MAX_ANSWER_BYTES = 4_096

/**
 * The text of the prober: a Perl program that exchanges packets with members and knows nothing of what they mean. Perl
 * is on every Debian and, unlike Node.js, can use raw sockets and ask for all ICMP errors (IP_RECVERR). Its arguments are
 * the uid and gid to live under. It opens its raw sockets as root, but with that account as their owner, as routing rules
 * see it; then it gives up its rights, and then it reads its first request.
 *
 * It reads and prints lines as prober-lines.ts describes. It ends with its input.
 * @throws Error for a processor whose system call numbers are unknown
 */
export const proberProgram = (processor: string): string => String.raw`use strict;
use warnings;
use Errno qw(EADDRNOTAVAIL EAGAIN EINPROGRESS EINTR EMFILE ENFILE ENOBUFS ENOMEM EPERM);
use POSIX ();
use Socket qw(:DEFAULT IPPROTO_ICMP IPPROTO_ICMPV6 IPPROTO_IP IPPROTO_IPV6 IPPROTO_TCP IPPROTO_UDP SOCK_NONBLOCK
  inet_pton pack_sockaddr_in6);
use constant {
  IPPROTO_SCTP => 132,
  IP_RECVERR => 11,
  IPV6_RECVERR => 25,
  MSG_ERRQUEUE => 0x2000,
  SO_RCVBUFFORCE => 33,
  PR_SET_PDEATHSIG => 1,
  CLOCK_MONOTONIC => 1,
  # Seconds between two looks at the sockets: what arrives in between costs one look.
  REST => 0.004,
  # Packets to read from a socket before the others have their turn.
  TURN => 8192,
  # Bytes for the answers to all probes while this process waits for a processor; small packets take some hundred each.
  BUFFER => 4_194_304,
  # The kernel's own limit of a datagram is higher, but no answer that counts is as long.
  PACKET => 16384,
};

$0 = 'krater-prober';
$SIG{PIPE} = 'IGNORE';
my ($uid, $gid) = @ARGV;
die "the account has no rights to give up\n" unless $uid > 0 && $gid > 0;
my $parent = getppid;

# These sockets belong to the account from the start.
$) = "$gid $gid";
syscall(${callNumber('setfsuid', processor)}, $uid + 0);
my %open;
sub share {
  my ($kind, $family, $type, $protocol) = @_;
  socket(my $socket, $family, $type | SOCK_NONBLOCK, $protocol) or return;
  setsockopt $socket, $family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6, $family == AF_INET ? IP_RECVERR : IPV6_RECVERR, 1;
  setsockopt $socket, SOL_SOCKET, SO_RCVBUFFORCE, BUFFER;
  $open{"$kind $family"} = { kind => $kind, family => $family, socket => $socket };
}
share('sctp', $_, SOCK_RAW, IPPROTO_SCTP) for AF_INET, AF_INET6;
share('echo', AF_INET, SOCK_DGRAM, IPPROTO_ICMP);
share('echo', AF_INET6, SOCK_DGRAM, IPPROTO_ICMPV6);

POSIX::setgid($gid);
POSIX::setuid($uid);
die "the rights are still there\n" if $< != $uid || $> != $uid || POSIX::setuid(0);
syscall(${callNumber('prctl', processor)}, PR_SET_PDEATHSIG, 9, 0, 0, 0);
exit if getppid != $parent;

# What the kernel writes to must be strings of their own.
my ($clock, $name, $quoted, $control) = ('', '', '', '');
vec($clock, 15, 8) = 0;
vec($name, 127, 8) = 0;
vec($quoted, 511, 8) = 0;
vec($control, 511, 8) = 0;
my $vector = pack 'P Q', $quoted, length $quoted;

sub now {
  syscall(${callNumber('clock_gettime', processor)}, CLOCK_MONOTONIC, $clock);
  my ($seconds, $nanoseconds) = unpack 'q2', $clock;
  return $seconds + $nanoseconds / 1e9;
}

my ($input, $output, $reading, $writing) = ('', '', '', '');
my %probes;   # by id
my %awaited;  # the same, without a socket of their own, by what their answers carry
my %ending;   # by time limit: [when, id], in order
my @owners;   # by descriptor: a probe, or a shared socket

sub watch {
  my ($owner) = @_;
  my $descriptor = fileno $owner->{socket};
  $owners[$descriptor] = $owner;
  vec($reading, $descriptor, 1) = 1;
  return $descriptor;
}

sub finish {
  my ($probe, $words) = @_;
  $output .= "$probe->{id} $words\n";
  delete $probes{$probe->{id}};
  delete $awaited{$probe->{key}} if defined $probe->{key};
  return unless $probe->{socket};
  my $descriptor = fileno $probe->{socket};
  vec($reading, $descriptor, 1) = vec($writing, $descriptor, 1) = 0;
  $owners[$descriptor] = undef;
  close $probe->{socket};
}

sub fail {
  my ($probe, $error) = @_;
  $! = $error;
  # EPERM: the packet filter has no room for another connection.
  my $is_ours = grep { $error == $_ } EADDRNOTAVAIL, EMFILE, ENFILE, ENOBUFS, ENOMEM, EPERM;
  finish($probe, $is_ours ? "unable $!" : "failed $probe->{stage} $!");
}

sub answered {
  my ($probe, $bytes) = @_;
  finish($probe, 'answer ' . (unpack('H*', substr $bytes, 0, $probe->{most}) || '-'));
}

sub begin {
  my ($line) = @_;
  my ($id, $kind, $address, $port, $limit, $payload, $most) =
    $line =~ /^(\d+) (udp|tcp|sctp|echo) ([0-9a-f:.]+) (\d+) (\d+) ([0-9a-f]+|-) (\d+)$/ or die "not a request\n";
  my $family = $address =~ /:/ ? AF_INET6 : AF_INET;
  my $packed = inet_pton($family, $address) // die "not an address\n";
  my $to = $family == AF_INET ? pack_sockaddr_in($port, $packed) : pack_sockaddr_in6($port, $packed);
  my $bytes = $payload eq '-' ? '' : pack 'H*', $payload;
  my $probe = $probes{$id} = { id => $id, kind => $kind, stage => 'connecting', most => $most, address => $packed };
  push @{ $ending{$limit} }, [now() + $limit / 1000, $id];
  if ($kind eq 'udp') { ask_udp($probe, $family, $to, $bytes) }
  elsif ($kind eq 'tcp') { ask_tcp($probe, $family, $to, $bytes) }
  else { ask_raw($probe, $family, $port, $bytes) }
}

sub ask_udp {
  my ($probe, $family, $to, $bytes) = @_;
  socket($probe->{socket}, $family, SOCK_DGRAM | SOCK_NONBLOCK, IPPROTO_UDP) or return unable($probe);
  watch($probe);
  setsockopt $probe->{socket}, $family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6,
    $family == AF_INET ? IP_RECVERR : IPV6_RECVERR, 1;
  connect($probe->{socket}, $to) or return fail($probe, $! + 0);
  $probe->{stage} = 'open';
  defined send($probe->{socket}, $bytes, 0) or fail($probe, $! + 0);
}

sub ask_tcp {
  my ($probe, $family, $to, $bytes) = @_;
  socket($probe->{socket}, $family, SOCK_STREAM | SOCK_NONBLOCK, IPPROTO_TCP) or return unable($probe);
  my $descriptor = watch($probe);
  # No TIME_WAIT for every probe.
  setsockopt $probe->{socket}, SOL_SOCKET, SO_LINGER, pack 'i2', 1, 0;
  @$probe{'bytes', 'answer'} = ($bytes, '');
  vec($writing, $descriptor, 1) = 1;
  connect($probe->{socket}, $to) or $! == EINPROGRESS or fail($probe, $! + 0);
}

# The system has no socket for it.
sub unable {
  my ($probe) = @_;
  delete $probe->{socket};
  finish($probe, "unable $!");
}

# Answers carry the source port of an SCTP packet, or the sequence number of an echo request.
sub ask_raw {
  my ($probe, $family, $port, $bytes) = @_;
  my ($kind, $id) = @$probe{'kind', 'id'};
  my $shared = $open{"$kind $family"} or return finish($probe, 'unable no socket for it');
  my $number = unpack $kind eq 'sctp' ? 'n' : 'x6 n', $bytes;
  $probe->{key} = "$kind $family $number";
  $probe->{start} = pack('n2', $port, $number) . substr $bytes, 16, 4 if $kind eq 'sctp';
  $awaited{$probe->{key}} = $probe if $id;
  my $to = $family == AF_INET ? pack_sockaddr_in(0, $probe->{address}) : pack_sockaddr_in6(0, $probe->{address});
  return fail($probe, $! + 0) unless defined send $shared->{socket}, $bytes, 0, $to;
  $probe->{stage} = 'open';
  delete $probes{$id} unless $id;
}

sub writable {
  my ($probe) = @_;
  my $error = unpack 'i', getsockopt $probe->{socket}, SOL_SOCKET, SO_ERROR;
  return fail($probe, $error) if $error;
  vec($writing, fileno $probe->{socket}, 1) = 0;
  $probe->{stage} = 'open';
  return answered($probe, '') if $probe->{bytes} eq '';
  fail($probe, $! + 0) unless (send($probe->{socket}, $probe->{bytes}, 0) // -1) == length $probe->{bytes};
}

sub readable {
  my ($probe) = @_;
  my $length = $probe->{kind} eq 'udp' ? PACKET : $probe->{most};
  my $bytes;
  unless (defined recv $probe->{socket}, $bytes, $length, 0) {
    return if $! == EAGAIN || $! == EINTR;
    return fail($probe, $! + 0);
  }
  return answered($probe, $bytes) if $probe->{kind} eq 'udp';
  $probe->{answer} .= $bytes;
  answered($probe, $probe->{answer})
    if $bytes eq '' || $probe->{answer} =~ /\n/ || length $probe->{answer} >= $probe->{most};
}

sub address_of {
  my ($family, $name) = @_;
  return substr $name, $family == AF_INET ? 4 : 8, $family == AF_INET ? 4 : 16;
}

sub receive {
  my ($shared) = @_;
  my ($kind, $family, $socket) = @$shared{'kind', 'family', 'socket'};
  for (1 .. TURN) {
    my $from = recv $socket, my $packet, PACKET, 0;
    unless (defined $from) {
      return if $! == EAGAIN;
      # An ICMP error for one of the packets; the queue says which.
      drain($shared);
      next;
    }
    # Raw IPv4 sockets get the IP header as well.
    substr $packet, 0, 4 * (ord($packet) & 15), '' if $kind eq 'sctp' && $family == AF_INET && $packet ne '';
    next if length $packet < 8;
    my $number = unpack $kind eq 'sctp' ? 'x2 n' : 'x6 n', $packet;
    my $probe = $awaited{"$kind $family $number"} or next;
    next if address_of($family, $from) ne $probe->{address};
    # Ports, and the tag that the INIT asked for: nobody else knows it.
    next if $kind eq 'sctp' && substr($packet, 0, 8) ne $probe->{start};
    answered($probe, $packet);
  }
}

sub drain {
  my ($shared) = @_;
  my ($kind, $family, $socket) = @$shared{'kind', 'family', 'socket'};
  for (1 .. TURN) {
    my $message = pack 'P L x4 P Q P Q L x4', $name, length $name, $vector, 1, $control, length $control, 0;
    my $length = syscall ${callNumber('recvmsg', processor)}, fileno $socket, $message, MSG_ERRQUEUE;
    return if $length < 0;
    next if $length < 8;
    my $number = unpack $kind eq 'sctp' ? 'n' : 'x6 n', $quoted;
    my $probe = $awaited{"$kind $family $number"} or next;
    next if address_of($family, $name) ne $probe->{address};
    # A control message with a struct sock_extended_err, whose first word is the error.
    fail($probe, unpack 'x16 L', $control);
  }
}

sub expire {
  my ($now) = @_;
  my $next;
  for my $limit (keys %ending) {
    my $queue = $ending{$limit};
    while (@$queue && ($queue->[0][0] <= $now || !$probes{ $queue->[0][1] })) {
      my $probe = $probes{ (shift @$queue)->[1] } or next;
      finish($probe, "silent $probe->{stage}");
    }
    if (!@$queue) { delete $ending{$limit} }
    elsif (!defined $next || $queue->[0][0] < $next) { $next = $queue->[0][0] }
  }
  return $next;
}

sub flush {
  while ($output ne '') {
    my $written = syswrite(STDOUT, $output);
    exit unless defined $written || $! == EINTR;
    substr $output, 0, $written // 0, '';
  }
}

# The descriptors in a set of select.
sub members {
  my ($set) = @_;
  my @found;
  while ($set =~ /[^\0]/g) {
    my $byte = pos($set) - 1;
    push @found, grep { vec $set, $_, 1 } 8 * $byte .. 8 * $byte + 7;
  }
  return @found;
}

watch($_) for values %open;
vec($reading, fileno STDIN, 1) = 1;
${seccompStatements(PROBER_RULES, processor)}
$output = "ready\n";
flush();
my $next;
while (1) {
  my $wait = defined $next ? $next - now() : undef;
  select my $readable = $reading, my $writable = $writing, undef, defined $wait && $wait < 0 ? 0 : $wait;
  # What has arrived by now is in time, however long this process had to wait for a processor.
  my $looked = now();
  for my $descriptor (members($writable)) {
    writable($owners[$descriptor]) if $owners[$descriptor];
  }
  for my $descriptor (members($readable)) {
    next if $descriptor == fileno STDIN;
    my $owner = $owners[$descriptor] or next;
    if (defined $owner->{id}) { readable($owner) if $owner->{stage} eq 'open' }
    else { receive($owner) }
  }
  if (vec $readable, fileno STDIN, 1) {
    sysread(STDIN, $input, 65536, length $input) or exit;
    begin($1) while $input =~ s/^([^\n]*)\n//;
  }
  $next = expire($looked);
  flush();
  select undef, undef, undef, REST;
}
`

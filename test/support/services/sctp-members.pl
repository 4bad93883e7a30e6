# Members that speak SCTP where the kernel does not. The port says how they answer an INIT:
#   9000 INIT ACK, 9001 ABORT, 9002 INIT ACK with another tag, 9003 not at all, 9004 pieces of an INIT ACK and worse.
# Prints `ABORT PORT` for each ABORT that is right in all: tag, length, checksum.
#   perl sctp-members.pl
use strict;
use warnings;
use Socket qw(:DEFAULT inet_pton pack_sockaddr_in6 unpack_sockaddr_in6);

$| = 1;
my $tag = 0x01020304;

sub crc32c {
  my $value = 0xffffffff;
  for my $byte (unpack 'C*', shift) {
    $value ^= $byte;
    $value = $value & 1 ? ($value >> 1) ^ 0x82f63b78 : $value >> 1 for 1 .. 8;
  }
  return $value ^ 0xffffffff;
}

# The checksum is the only field in little-endian order.
sub packet {
  my ($from, $to, $verification, $chunk) = @_;
  my $header = pack 'n n N', $from, $to, $verification;
  return $header . pack('V', crc32c($header . "\0\0\0\0" . $chunk)) . $chunk;
}

my @sockets = map { socket(my $socket, $_, SOCK_RAW, 132) or die "$!\n"; $socket } AF_INET, AF_INET6;
print "ready\n";
while (1) {
  my $set = '';
  vec($set, fileno $_, 1) = 1 for @sockets;
  select my $found = $set, undef, undef, undef;
  for my $socket (grep { vec $found, fileno $_, 1 } @sockets) {
    my $sender = recv $socket, my $packet, 65536, 0 or next;
    substr $packet, 0, 20, '' if $socket == $sockets[0];
    my ($from, $to, $verification, $checksum, $type, undef, $length, $peer) = unpack 'n n N V C C n N', $packet;
    next unless defined $length;
    my $is_right = $checksum == crc32c(substr($packet, 0, 8) . "\0\0\0\0" . substr $packet, 12);
    print "ABORT $to\n" if $type == 6 && $is_right && $verification == $tag && length $packet == 16;
    next unless $type == 1 && $is_right && $verification == 0 && length $packet == 32;
    my $ack = pack 'C C n N N n n N', 2, 0, 20, $tag, 65536, 1, 1, 1;
    my @answers =
        $to == 9000 ? packet($to, $from, $peer, $ack)
      : $to == 9001 ? packet($to, $from, $peer, pack 'C C n', 6, 0, 4)
      : $to == 9002 ? packet($to, $from, $peer ^ 1, $ack)
      : $to == 9004 ? ((map { substr packet($to, $from, $peer, $ack), 0, $_ } 0 .. 11), packet($to, $from, $peer, "\xff" x 9000))
      : ();
    send $socket, $_, 0, $sender for @answers;
  }
}

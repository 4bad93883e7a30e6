# A client that prints what is answered to datagrams: one on each of COUNT new sockets, one after the other.
#   perl datagram-lines.pl ADDRESS PORT COUNT
use strict;
use warnings;
use Socket;

$| = 1;
my ($address, $port, $count) = @ARGV;
for (1 .. $count) {
  socket my $socket, AF_INET, SOCK_DGRAM, 17 or die "socket: $!\n";
  connect $socket, pack_sockaddr_in($port, inet_aton $address) or die "connect: $!\n";
  my $answer;
  # A datagram may be lost. The flow stays with its member.
  for (1 .. 3) {
    send $socket, "x\n", 0 or die "send: $!\n";
    vec(my $set = '', fileno $socket, 1) = 1;
    next if !select $set, undef, undef, 5;
    defined(recv $socket, $answer, 1024, 0) or die "recv: $!\n";
    last;
  }
  print $answer // die "silence\n";
}

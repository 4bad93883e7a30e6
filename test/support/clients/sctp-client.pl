# A client that speaks SCTP where the kernel does not: sends packets as they are, and prints the first answer from the
# same address in hexadecimal, or `silence` after a second without one.
#   perl sctp-client.pl ADDRESS PACKET...
use strict;
use warnings;
use Socket qw(:DEFAULT inet_pton inet_ntop pack_sockaddr_in6 unpack_sockaddr_in6);

my ($address, @packets) = @ARGV;
my $family = $address =~ /:/ ? AF_INET6 : AF_INET;
my $binary = inet_pton($family, $address) or die "no address: $address\n";
socket my $socket, $family, SOCK_RAW, 132 or die "$!\n";
my $to = $family == AF_INET ? pack_sockaddr_in(0, $binary) : pack_sockaddr_in6(0, $binary);
send $socket, pack('H*', $_), 0, $to or die "$!\n" for @packets;
my $end = time + 2;
while (time < $end) {
  vec(my $set = '', fileno $socket, 1) = 1;
  select($set, undef, undef, 1) or last;
  my $sender = recv $socket, my $packet, 65536, 0 or next;
  substr $packet, 0, 20, '' if $family == AF_INET;
  my (undef, $from) = $family == AF_INET ? unpack_sockaddr_in($sender) : unpack_sockaddr_in6($sender);
  next if $from ne $binary;
  print unpack('H*', $packet), "\n";
  exit;
}
print "silence\n";

# A server that answers each datagram with its own name and the address of the client.
#   perl datagram-server.pl NAME ADDRESS PORT
use strict;
use warnings;
use Socket;

my ($name, $address, $port) = @ARGV;
socket my $server, AF_INET, SOCK_DGRAM, 17 or die "socket: $!\n";
bind $server, pack_sockaddr_in($port, inet_aton $address) or die "bind: $!\n";
while (defined(my $client = recv $server, my $text, 1024, 0)) {
  my (undef, $from) = unpack_sockaddr_in $client;
  send $server, "$name " . inet_ntoa($from) . "\n", 0, $client;
}

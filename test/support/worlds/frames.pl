# frames.pl send INTERFACE FRAME ...: sends frames, given in hexadecimal.
# frames.pl count INTERFACE SECONDS TEXT ...: prints "ready", then how many frames with each text came in.
use strict;
use warnings;
use Socket;

my ($what, $interface, @words) = @ARGV;
my ($AF_PACKET, $ETH_P_ALL) = (17, 3);
socket(my $socket, $AF_PACKET, SOCK_RAW, unpack('n', pack('S', $ETH_P_ALL))) or die "socket: $!";
open(my $file, '<', "/proc/net/dev_mcast") or die;
my ($index) = map { (split)[0] } grep { (split)[1] eq $interface } <$file>;
die "$interface has no index\n" unless defined $index;
bind($socket, pack('S n i S C C a8', $AF_PACKET, $ETH_P_ALL, $index, 0, 0, 0, '')) or die "bind: $!";

if ($what eq 'send') {
    for (@words) { defined send($socket, pack('H*', $_), 0) or die "send: $!" }
    exit;
}
my $seconds = shift @words;
my %count = map { $_ => 0 } @words;
$| = 1;
print "ready\n";
my $until = time + $seconds;
while (time < $until) {
    my $ready = '';
    vec($ready, fileno($socket), 1) = 1;
    next unless select($ready, undef, undef, 0.1);
    my $from = recv($socket, my $frame, 65536, 0);
    # Outgoing frames, of packet type 4, are seen too.
    next if unpack('x10 C', $from) == 4;
    index($frame, $_) >= 0 and $count{$_}++ for @words;
    last if index($frame, 'LAST') >= 0;
}
print join(' ', map { $count{$_} } @words), "\n";

# Sends one frame as it is, from an interface, whatever the kernel would make of it.
#   perl - INTERFACE KIND MAC ADDRESS
# KIND: arp (a gratuitous ARP for ADDRESS), na (an unsolicited neighbour advertisement for it), vrrp (an advertisement
# from ADDRESS), tagged (a gratuitous ARP in VLAN 7), double (the same, tagged twice)
use strict;
use warnings;
use Socket;
use Socket qw(inet_pton AF_INET6 AF_INET);

my ($interface, $kind, $mac, $address) = @ARGV;
my ($ETH_P_ALL, $AF_PACKET) = (0x0003, 17);
my $own = pack 'H12', $mac =~ s/://gr;
my $everybody = "\xff" x 6;

sub sum {
  my $data = shift;
  $data .= "\0" if length($data) % 2;
  my $sum = 0;
  $sum += $_ for unpack 'n*', $data;
  $sum = ($sum & 0xffff) + ($sum >> 16) while $sum >> 16;
  return ~$sum & 0xffff;
}

sub arp { my $ip = inet_pton(AF_INET, $address); return pack('nnCCn', 1, 0x0800, 6, 4, 1) . $own . $ip . $own . $ip }

sub na {
  my ($source, $all) = (inet_pton(AF_INET6, $address), inet_pton(AF_INET6, 'ff02::1'));
  my $said = sub { pack('CCnN', 136, 0, shift, 0x20000000) . $source . pack('CC', 2, 1) . $own };
  my $length = length $said->(0);
  my $message = $said->(sum($source . $all . pack('NN', $length, 58) . $said->(0)));
  return pack('NnCC', 0x60000000, $length, 58, 255) . $source . $all . $message;
}

sub vrrp {
  my ($source, $all) = (inet_pton(AF_INET, $address), inet_pton(AF_INET, '224.0.0.18'));
  my $said = sub { pack('CCCCnn', 0x31, 1, 255, 1, 20, shift) . $source };
  my $message = $said->(sum($source . $all . pack('xCn', 112, 12) . $said->(0)));
  my $header = sub { pack('CCnnnCCn', 0x45, 0xc0, 32, 1, 0, 255, 112, shift) . $source . $all };
  return $header->(sum($header->(0))) . $message;
}

my %frames = (
  arp => sub { $everybody . $own . pack('n', 0x0806) . arp() },
  na => sub { pack('H12', '333300000001') . $own . pack('n', 0x86dd) . na() },
  vrrp => sub { pack('H12', '01005e000012') . $own . pack('n', 0x0800) . vrrp() },
  tagged => sub { $everybody . $own . pack('nnn', 0x8100, 7, 0x0806) . arp() },
  double => sub { $everybody . $own . pack('nnnnn', 0x88a8, 7, 0x8100, 7, 0x0806) . arp() },
);
socket(my $socket, $AF_PACKET, SOCK_RAW, unpack('S', pack('n', $ETH_P_ALL))) or die "socket: $!\n";
open(my $file, '<', "/sys/class/net/$interface/ifindex") or die "$interface: $!\n";
chomp(my $index = <$file>);
send($socket, $frames{$kind}->(), 0, pack('SnlSCCa8', $AF_PACKET, 0, $index, 0, 0, 6, $everybody)) or die "send: $!\n";

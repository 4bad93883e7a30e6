# Sends frames as they are, from an interface, whatever the kernel would make of them.
#   perl - INTERFACE KIND MAC ADDRESS
# KIND: arp (a gratuitous ARP for ADDRESS), probe (an ARP probe for it), na (an unsolicited neighbour advertisement for
# it), vrrp (an advertisement from ADDRESS), dhcp (what a DHCP server at ADDRESS sends), ra (a router advertisement from
# it), hidden (the same in two fragments, of which the first has nothing but an extension header), tagged (a gratuitous
# ARP in VLAN 7), double (the same, tagged twice), macs (gratuitous ARPs from 1,200 MAC addresses)
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

sub ra {
  my ($source, $all) = (inet_pton(AF_INET6, $address), inet_pton(AF_INET6, 'ff02::1'));
  my $said = sub { pack('CCnCCnNN', 134, 0, shift, 64, 0, 1800, 0, 0) };
  return ($source . $all, $said->(sum($source . $all . pack('NN', 16, 58) . $said->(0))));
}

sub six { my ($addresses, $next, $payload) = @_; return pack('NnCC', 0x60000000, length $payload, $next, 255) . $addresses . $payload }

sub hidden {
  my ($addresses, $message) = ra();
  my $fragment = sub { my ($offset, $more, $payload) = @_; pack('CCnN', 60, 0, $offset << 3 | $more, 7) . $payload };
  return (six($addresses, 44, $fragment->(0, 1, pack('CCCCN', 58, 0, 1, 4, 0))), six($addresses, 44, $fragment->(1, 0, $message)));
}

sub dhcp {
  my $source = inet_pton(AF_INET, $address);
  my $header = sub { pack('CCnnnCCn', 0x45, 0, 36, 1, 0, 64, 17, shift) . $source . "\xff" x 4 };
  return $header->(sum($header->(0))) . pack('nnnn', 67, 68, 16, 0) . "\2" x 8;
}

sub vrrp {
  my ($source, $all) = (inet_pton(AF_INET, $address), inet_pton(AF_INET, '224.0.0.18'));
  my $said = sub { pack('CCCCnn', 0x31, 1, 255, 1, 20, shift) . $source };
  my $message = $said->(sum($source . $all . pack('xCn', 112, 12) . $said->(0)));
  my $header = sub { pack('CCnnnCCn', 0x45, 0xc0, 32, 1, 0, 255, 112, shift) . $source . $all };
  return $header->(sum($header->(0))) . $message;
}

sub multicast { my ($type) = @_; return pack('H12', '333300000001') . $own . pack('n', $type) }

my %frames = (
  probe => sub { $everybody . $own . pack('nnnCCn', 0x0806, 1, 0x0800, 6, 4, 1) . $own . "\0" x 10 . inet_pton(AF_INET, $address) },
  dhcp => sub { $everybody . $own . pack('n', 0x0800) . dhcp() },
  ra => sub { my ($addresses, $message) = ra(); multicast(0x86dd) . six($addresses, 58, $message) },
  hidden => sub { map { multicast(0x86dd) . $_ } hidden() },
  macs => sub { map { $everybody . pack('nN', 0x0200, $_) . pack('n', 0x0806) . arp() } 1 .. 1200 },
  arp => sub { $everybody . $own . pack('n', 0x0806) . arp() },
  na => sub { pack('H12', '333300000001') . $own . pack('n', 0x86dd) . na() },
  vrrp => sub { pack('H12', '01005e000012') . $own . pack('n', 0x0800) . vrrp() },
  tagged => sub { $everybody . $own . pack('nnn', 0x8100, 7, 0x0806) . arp() },
  double => sub { $everybody . $own . pack('nnnnn', 0x88a8, 7, 0x8100, 7, 0x0806) . arp() },
);
socket(my $socket, $AF_PACKET, SOCK_RAW, unpack('S', pack('n', $ETH_P_ALL))) or die "socket: $!\n";
open(my $file, '<', "/sys/class/net/$interface/ifindex") or die "$interface: $!\n";
chomp(my $index = <$file>);
my $way = pack('SnlSCCa8', $AF_PACKET, 0, $index, 0, 0, 6, $everybody);
for my $frame ($frames{$kind}->()) { send($socket, $frame, 0, $way) or die "send: $!\n" }

import { execFile } from 'node:child_process'
import { promisify } from 'node:util'

const run = promisify(execFile)

/**
 * Asks on an interface who has addresses, in ARP and neighbour discovery, as a machine asks before it takes an address
 * (RFC 5227, RFC 4862). Prints a line `ADDRESS MAC` for each answer.
 */
const PROGRAM = String.raw`
use strict; use warnings; use Socket qw(:DEFAULT inet_pton inet_ntop AF_INET6);
my ($interface, $own, @targets) = @ARGV;
sub mac { pack('H12', join '', split /:/, shift) }
sub sum { my $s = 0; $s += $_ for unpack('n*', shift); $s = ($s & 0xffff) + ($s >> 16) while $s >> 16; ~$s & 0xffff }
socket(my $socket, 17, SOCK_RAW, unpack('S', pack('n', 3))) or die "socket: $!";
open(my $file, '-|', 'ip', '-o', 'link', 'show', 'dev', $interface) or die;
my ($index) = <$file> =~ /^(\d+)/ or die "no index";
bind($socket, pack('S n i S C C a8', 17, 3, $index, 0, 0, 0, '')) or die "bind: $!";
my $from = mac($own);
sub frame {
  if (/:/) {
    my $target = inet_pton(AF_INET6, $_);
    my $group = pack('H*', 'ff0200000000000000000001ff') . substr($target, 13);
    my $source = "\0" x 16;
    my $body = pack('C C n N', 135, 0, 0, 0) . $target;
    my $sum = sum($source . $group . pack('N N', length $body, 58) . $body);
    substr($body, 2, 2) = pack('n', $sum);
    return "\x33\x33" . substr($group, 12) . $from . pack('n N n C C', 0x86dd, 0x60000000, length $body, 58, 255) . $source . $group . $body;
  }
  "\xff" x 6 . $from . pack('n n n C C n', 0x0806, 1, 0x0800, 6, 4, 1) . $from . "\0" x 4 . "\0" x 6 . inet_aton($_);
}
my %wanted = map { $_ => 1 } @targets;
# A thousand questions a second: switches and this socket drop what comes faster.
my $until = time + 2;
while (@targets || time < $until) {
  if (@targets) {
    local $_ = shift @targets;
    send($socket, frame(), 0);
    $until = time + 2;
  }
  my $ready = ''; vec($ready, fileno($socket), 1) = 1;
  next unless select($ready, undef, undef, @targets ? 0.001 : 0.2);
  recv($socket, my $frame, 2048, 0);
  my ($type) = unpack('x12 n', $frame);
  my $sender = join ':', unpack('(H2)6', substr($frame, 6, 6));
  my $address = '';
  if ($type == 0x0806 && unpack('x20 n', $frame) == 2) { $address = inet_ntoa(substr($frame, 28, 4)) }
  elsif ($type == 0x86dd && length $frame >= 78 && unpack('x20 C', $frame) == 58 && unpack('x54 C', $frame) == 136) {
    $address = inet_ntop(AF_INET6, substr($frame, 62, 16));
  }
  print "$address $sender\n" if $wanted{$address};
}
`

export type Answer = { address: string; macAddress: string }

/**
 * Asks who has these addresses on the network of an interface of the host, from a MAC address.
 * @returns the answers of two seconds
 * @throws Error with Perl's message
 */
export async function whoHas(
  interfaceName: string,
  { addresses, from }: { addresses: readonly string[]; from: string },
): Promise<Answer[]> {
  const { stdout } = await run('perl', ['-e', PROGRAM, interfaceName, from, ...addresses], { timeout: 10_000 })
  return stdout.split('\n').flatMap(line => {
    const [address, macAddress] = line.split(' ')
    return address === undefined || macAddress === undefined ? [] : [{ address, macAddress }]
  })
}

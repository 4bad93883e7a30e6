# A client on the kernel's SCTP: sends lines on associations and prints the answers, one per line.
#   perl sctp-lines.pl ADDRESS PORT COUNT: one line on each of COUNT new associations, one after the other
#   perl sctp-lines.pl ADDRESS PORT: five lines a second on one association, until it is lost
use strict;
use warnings;
use Socket;

$| = 1;
my ($address, $port, $count) = @ARGV;

sub associate {
  socket my $socket, AF_INET, SOCK_STREAM, 132 or die "socket: $!\n";
  connect $socket, pack_sockaddr_in($port, inet_aton $address) or die "connect: $!\n";
  return $socket;
}

sub say_to {
  my ($socket, $line) = @_;
  syswrite $socket, "$line\n" or die "send: $!\n";
  defined(my $answer = <$socket>) or die "lost\n";
  print $answer;
}

if (defined $count) {
  say_to(associate(), $_) for 1 .. $count;
  exit;
}
my $kept = associate();
for (my $number = 1; ; $number++) {
  say_to($kept, $number);
  select undef, undef, undef, 0.2;
}

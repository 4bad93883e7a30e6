# Copies its input to a file and keeps the last of it: what a machine and its QEMU say is as long as they like.
#   console.pl BYTES       The file is the standard output.
# It does so in the background, and ends with its input.
use strict;
use warnings;

my ($most) = @ARGV;
exit 0 if fork;
my $size = -s STDOUT;
sysseek STDOUT, 0, 2;
while (sysread STDIN, my $piece, 65536) {
  if ($size + length $piece > $most) {
    # The second half moves to the front.
    my $kept = '';
    sysseek STDOUT, $size > $most / 2 ? $size - $most / 2 : 0, 0;
    sysread STDOUT, $kept, $most / 2;
    truncate STDOUT, 0;
    sysseek STDOUT, 0, 0;
    $size = 0;
    $piece = $kept . $piece;
  }
  $size += syswrite STDOUT, $piece or exit 1;
}

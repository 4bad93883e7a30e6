# Listens on a Unix socket, and runs a program that gets the socket as a file of that number.
#   listen.pl DIRECTORY NAME NUMBER PROGRAM...
# The program itself never has the right to make or replace the socket: whoever breaks out of it cannot lead the
# controller elsewhere. A relative name, because a socket's path may have 107 characters only.
use strict;
use warnings;
use POSIX ();
use Socket qw(PF_UNIX SOCK_STREAM pack_sockaddr_un);

my ($directory, $name, $number, @program) = @ARGV;
chdir $directory or die "$directory: $!\n";
unlink $name;
socket(my $socket, PF_UNIX, SOCK_STREAM, 0) or die "socket: $!\n";
my $mask = umask 0177;
bind($socket, pack_sockaddr_un($name)) or die "bind: $!\n";
umask $mask;
listen($socket, 8) or die "listen: $!\n";
POSIX::dup2(fileno($socket), $number) or die "dup2: $!\n";
chdir '/';
exec { $program[0] } @program or die "$program[0]: $!\n";

# An attacker in an amphora: tries each system call that leads out of it. Prints `name errno` for each, with the errno's name (EPERM), or `name done`.
#   perl - [ACCOUNT ROOT]   as that account, confined to ROOT, as HAProxy's worker is; without arguments, as started
# A call that reaches the kernel's own check of its arguments (EINVAL, EFAULT ...) was not refused.
use strict;
use warnings;
no warnings 'once';
use Errno;
use POSIX ();
require 'syscall.ph';

my %words = map { my $name = $_; eval { no strict 'refs'; (&{"Errno::$name"}() => $name) } } keys %!;
sub attempt {
  my ($name, $work) = @_;
  $! = 0;
  my $result = $work->();
  my $errno = $! + 0;
  my $failed = !defined $result || $result eq '-1';
  print "$name ", ($failed ? $words{$errno} // $errno : 'done'), "\n";
}
# Numbers that the header files of an older system lack are the same on all architectures.
my %numbers = (io_uring_setup => 425, open_tree => 428, fsopen => 430, clone3 => 435, pidfd_getfd => 438);
sub call {
  my ($name, @arguments) = @_;
  my $number = $numbers{$name} // eval { no strict 'refs'; &{"main::SYS_$name"}() };
  return unless defined $number;
  attempt($name, sub { syscall($number, @arguments) });
}

$| = 1;
my ($account, $root) = @ARGV;
if (defined $account) {
  my (undef, undef, $uid, $gid) = getpwnam $account or die "no account $account\n";
  chroot $root or die "$root: $!\n";
  chdir '/';
  $( = $) = "$gid $gid";
  POSIX::setuid($uid) == 0 or die "setuid: $!\n";
}

# Namespaces: user and all others, with both clones, and another process's.
call('unshare', 0x10000000 | 0x40000000 | 0x20000);
{
  my $parent = $$;
  attempt('clone', sub { my $pid = syscall(&main::SYS_clone(), 0x10000000 | 17, 0, 0, 0, 0); POSIX::_exit(0) if $$ != $parent; $pid });
}
call('clone3', 0, 0);
call('setns', 0, 0x40000000);
# Mounts.
call('mount', 0, 0, 0, 0, 0);
call('umount2', 0, 0);
call('pivot_root', 0, 0);
call('open_tree', -1, 0, 0);
call('fsopen', 0, 0);
call('open_by_handle_at', -1, 0, 0);
call('name_to_handle_at', -1, 0, 0, 0, 0);
# Other processes.
call('ptrace', 16, 1, 0, 0);
call('process_vm_readv', 1, 0, 0, 0, 0, 0);
call('process_vm_writev', 1, 0, 0, 0, 0, 0);
call('pidfd_getfd', -1, 0, 0);
call('kcmp', 1, 1, 0, 0, 0);
# Large parts of the kernel that nothing here needs.
call('keyctl', 0, -3, 0, 0, 0);
call('add_key', 0, 0, 0, 0, 0);
call('request_key', 0, 0, 0, 0);
call('bpf', 0, 0, 0);
call('perf_event_open', 0, 0, 0, 0, 0);
call('io_uring_setup', 0, 0);
call('userfaultfd', 0);
call('fanotify_init', 0, 0);
call('quotactl', 0, 0, 0, 0);
call('personality', 0x0040000);
# The machine itself.
call('init_module', 0, 0, 0);
call('finit_module', -1, 0, 0);
call('delete_module', 0, 0);
call('kexec_load', 0, 0, 0, 0);
call('kexec_file_load', -1, -1, 0, 0, 0);
call('reboot', 0, 0, 0, 0);
call('swapon', 0, 0);
call('acct', 0);
call('settimeofday', 0, 0);
call('adjtimex', 0);
call('iopl', 3);
call('ioperm', 0, 1, 1);
call('syslog', 10, 0, 0);
call('sethostname', 0, 0);
attempt('mknodat', sub { my $name = 'disk'; syscall(&main::SYS_mknodat(), -100, $name, 0060600, 0xfe00) });
# Families of sockets: VSOCK leads to a hypervisor, ALG, TIPC, RDS, CAN and BLUETOOTH into rarely used code.
for my $family ([VSOCK => 40], [ALG => 38], [TIPC => 30], [RDS => 21], [CAN => 29], [BLUETOOTH => 31], [KEY => 15]) {
  attempt("socket-$family->[0]", sub { syscall(&main::SYS_socket(), $family->[1], 3, 0) });
}
attempt('netlink-audit', sub { syscall(&main::SYS_socket(), 16, 3, 9) });
attempt('terminal-typing', sub { my $key = 'x'; syscall(&main::SYS_ioctl(), 0, 0x5412, $key) });
attempt('setting-of-the-kernel', sub { open my $file, '>', '/proc/sys/kernel/core_pattern' });
attempt('limit-of-its-own', sub { open my $file, '>', '/proc/sys/user/max_inotify_instances' });
attempt('sysrq', sub { open my $file, '>', '/proc/sysrq-trigger' });
attempt('disk', sub { open my $file, '<', '/dev/vda' });
attempt('memory', sub { open my $file, '<', '/dev/mem' });
# The host's files, which do not change even if this succeeds.
for my $file (['/dev/null' => 0666], ['/dev/urandom' => 0666], ['/proc/meminfo' => 0444], ['/proc/uptime' => 0444]) {
  attempt("mode-of-$file->[0]", sub { syscall(&main::SYS_fchmodat(), -100, $file->[0], $file->[1]) });
}

if (defined $account) {
  attempt('keys', sub { open my $file, '<', '/run/krater/boot.json' });
  attempt('other-process', sub { open my $file, '<', '/proc/1/environ' });
  attempt('agent', sub { syscall(&main::SYS_kill(), 1, 9) });
  attempt('root', sub { syscall(&main::SYS_setuid(), 0) });
  attempt('chroot', sub { my $here = '.'; syscall(&main::SYS_chroot(), $here) });
  attempt('shell', sub { my $shell = '/bin/sh'; syscall(&main::SYS_execve(), $shell, 0, 0) });
  attempt('file', sub { open my $file, '>', '/mine' });
  attempt('memfd', sub { my $name = 'program'; syscall(&main::SYS_memfd_create(), $name, 0) });
  call('execveat', -1, 0, 0, 0, 0x1000);
  attempt('raw', sub { syscall(&main::SYS_socket(), 2, 3, 1) });
  attempt('socket-PACKET', sub { syscall(&main::SYS_socket(), 17, 3, 768) });
  attempt('socket-NETLINK', sub { syscall(&main::SYS_socket(), 16, 3, 0) });
} else {
  # Networks behind its own interfaces: the fabric, and from there the host. What it names there does not exist.
  my $bytes = sub { my ($kind, $value) = @_; pack('SSa*', 4 + length $value, $kind, $value) . "\0" x (-length($value) % 4) };
  my ($card_list, $card_new, $card_gone) = (18, 16, 17);
  my ($name, $card, $kind, $network_of_card, $network) = (3, 5, 18, 37, 46);
  my $ask = sub {
    my ($request, $flags, @attributes) = @_;
    my $message = pack('CxSiII', 0, 0, 0, 0, 0) . join '', map { $bytes->(@$_) } @attributes;
    open my $socket, '+<&=', syscall(&main::SYS_socket(), 16, 3, 0) or return;
    syswrite $socket, pack('LSSLL', 16 + length $message, $request, 5 | $flags, 1, 0) . $message or return;
    sysread $socket, my $answer, 65536 or return;
    my (undef, $type, $errno) = unpack 'LSx10l', $answer;
    $! = $type == 2 || $type == 3 ? -$errno : 0;
    return $! ? -1 : 0;
  };
  my $macvlan = [$kind, $bytes->(1, "macvlan\0")];
  attempt('cards-of-the-fabric', sub { $ask->($card_list, 0x300, [$network, pack 'l', 0]) });
  attempt('end-of-a-card-of-the-fabric', sub { $ask->($card_gone, 0, [$network, pack 'l', 0], [$name, "none\0"]) });
  attempt('card-over-the-host\'s', sub {
    $ask->($card_new, 0x600, [$network, pack 'l', 0], [$name, "mine\0"], [$card, pack 'l', 1], [$network_of_card, pack 'l', 0], $macvlan);
  });
  attempt('card-over-the-fabric\'s', sub {
    $ask->($card_new, 0x600, [$name, "mine\0"], [$card, pack 'l', 1], [$network_of_card, pack 'l', 0], $macvlan);
  });
}

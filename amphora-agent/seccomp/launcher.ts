import { type Rules, seccompFilter } from './filter.js'
import { type Architecture, numberOf } from './system-calls.js'

const PR_SET_SECCOMP = 22
const SECCOMP_MODE_FILTER = 2
const PR_SET_NO_NEW_PRIVS = 38
/** RLIMIT_NPROC: counts all processes of an account on the host; does not apply to root. */
const RLIMIT_NPROC = 6

/**
 * The text of a Perl program that installs the filter on itself, permanently and for all its children, and then
 * executes the program in its arguments. Perl, which every Debian has, can make a system call by number; a shell
 * cannot. Pure.
 * @param options.processes limit of processes and threads of the account that the program ends up with
 * @throws Error for a processor whose system call numbers are unknown
 */
export function seccompLauncher(rules: Rules, processor: string, { processes }: { processes?: number } = {}): string {
  if (!isArchitecture(processor)) throw new Error(`There is no seccomp filter for processor ${processor}.`)
  const prctl = numberOf('prctl', processor)
  const bounded =
    processes === undefined
      ? ''
      : `my $most = pack 'Q2', ${processes}, ${processes};
syscall(${numberOf('prlimit64', processor)}, 0, ${RLIMIT_NPROC}, $most, 0) == 0 or die "processes: $!\\n";
`
  return `${bounded}my $filter = pack 'H*', '${seccompFilter(processor, rules).toString('hex')}';
my $program = pack 'S x6 P', length($filter) / 8, $filter;
syscall(${prctl}, ${PR_SET_NO_NEW_PRIVS}, 1, 0, 0, 0) == 0 or die "no_new_privs: $!\\n";
syscall(${prctl}, ${PR_SET_SECCOMP}, ${SECCOMP_MODE_FILTER}, $program, 0, 0) == 0 or die "seccomp: $!\\n";
exec { $ARGV[0] } @ARGV or die "$ARGV[0]: $!\\n";
`
}

const isArchitecture = (processor: string): processor is Architecture => processor === 'x64' || processor === 'arm64'

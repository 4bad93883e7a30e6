import { type Rules, seccompFilter } from './filter.js'
import { type Architecture, numberOf } from './system-calls.js'

const SET_SECCOMP = 22
const FILTER_MODE = 2
const SET_NO_NEW_PRIVILEGES = 38
/** RLIMIT_NPROC: of one account other than root's, all that it has on the host counted. */
const LIMIT_OF_PROCESSES = 6

/**
 * The text of a program for Perl, which every Debian has: it lays the filter on itself, for ever and for all that it starts, and becomes the program
 * that its arguments name. Perl can make a system call by its number, and a shell cannot. Pure.
 * @param options.processes most processes and threads of the account that it ends up with
 * @throws Error for a processor whose system calls we do not know
 */
export function seccompLauncher(rules: Rules, processor: string, { processes }: { processes?: number } = {}): string {
  if (!isArchitecture(processor)) throw new Error(`No seccomp filter is known for the processor ${processor}.`)
  const prctl = numberOf('prctl', processor)
  const bounded =
    processes === undefined
      ? ''
      : `my $most = pack 'Q2', ${processes}, ${processes};
syscall(${numberOf('prlimit64', processor)}, 0, ${LIMIT_OF_PROCESSES}, $most, 0) == 0 or die "processes: $!\\n";
`
  return `${bounded}my $filter = pack 'H*', '${seccompFilter(processor, rules).toString('hex')}';
my $program = pack 'S x6 P', length($filter) / 8, $filter;
syscall(${prctl}, ${SET_NO_NEW_PRIVILEGES}, 1, 0, 0, 0) == 0 or die "no_new_privs: $!\\n";
syscall(${prctl}, ${SET_SECCOMP}, ${FILTER_MODE}, $program, 0, 0) == 0 or die "seccomp: $!\\n";
exec { $ARGV[0] } @ARGV or die "$ARGV[0]: $!\\n";
`
}

const isArchitecture = (processor: string): processor is Architecture => processor === 'x64' || processor === 'arm64'

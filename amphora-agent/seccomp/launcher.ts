import { type Rules, seccompFilter } from './filter.js'
import { type Architecture, numberOf, type SystemCall } from './system-calls.js'

/** The interpreter, which every Debian has. */
export const PERL = '/usr/bin/perl'

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
  const bounded =
    processes === undefined
      ? ''
      : `my $most = pack 'Q2', ${processes}, ${processes};
syscall(${callNumber('prlimit64', processor)}, 0, ${RLIMIT_NPROC}, $most, 0) == 0 or die "processes: $!\\n";
`
  return `${bounded}${seccompStatements(rules, processor)}exec { $ARGV[0] } @ARGV or die "$ARGV[0]: $!\\n";
`
}

/**
 * Perl statements that install the filter permanently on the program that contains them. Pure.
 * @throws Error for a processor whose system call numbers are unknown
 */
export function seccompStatements(rules: Rules, processor: string): string {
  const prctl = callNumber('prctl', processor)
  return `my $filter = pack 'H*', '${seccompFilter(architectureOf(processor), rules).toString('hex')}';
my $program = pack 'S x6 P', length($filter) / 8, $filter;
syscall(${prctl}, ${PR_SET_NO_NEW_PRIVS}, 1, 0, 0, 0) == 0 or die "no_new_privs: $!\\n";
syscall(${prctl}, ${PR_SET_SECCOMP}, ${SECCOMP_MODE_FILTER}, $program, 0, 0) == 0 or die "seccomp: $!\\n";
`
}

/**
 * The number of a system call, for a Perl program.
 * @returns null where the processor has no such call
 * @throws Error for a processor whose system call numbers are unknown
 */
export const callNumber = (call: SystemCall, processor: string): number | null =>
  numberOf(call, architectureOf(processor))

function architectureOf(processor: string): Architecture {
  if (processor !== 'x64' && processor !== 'arm64') {
    throw new Error(`There is no seccomp filter for processor ${processor}.`)
  }
  return processor
}

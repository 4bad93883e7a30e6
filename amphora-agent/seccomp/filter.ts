import { type Architecture, numberOf, SYSTEM_CALLS, type SystemCall } from './system-calls.js'

/**
 * True if the lower half of an argument (0 to 5), masked, equals the value: flags, families and requests have 32
 * bits.
 */
export type Comparison = { argument: number; mask?: number; equals: number }

/**
 * Whether a call is allowed. A list of alternatives is true if all comparisons of one of them are; an empty list is
 * false. A refused call fails with `errno`.
 */
export type Rule = 'allow' | { only: Comparison[][]; errno: number } | { unless: Comparison[][]; errno: number }

export type Rules = Partial<Record<SystemCall, Rule>>

export const EPERM = 1
export const ENOSYS = 38
export const EPROTONOSUPPORT = 93
export const EAFNOSUPPORT = 97

/** AUDIT_ARCH_X86_64 and AUDIT_ARCH_AARCH64 of linux/audit.h. */
const AUDIT: Readonly<Record<Architecture, number>> = { x64: 0xc000003e, arm64: 0xc00000b7 }

// Operations of linux/bpf_common.h: load a word, mask it, jump by comparison, return.
const LOAD = 0x20
const MASK = 0x54
const JUMP_EQUAL = 0x15
const JUMP_GREATER = 0x25
const JUMP_NOT_LESS = 0x35
const RETURN = 0x06

const KILL_PROCESS = 0x80000000
const ALLOW = 0x7fff0000
const refuse = (errno: number) => (0x00050000 | errno) >>> 0

// Offsets in struct seccomp_data; both architectures are little-endian.
const NUMBER_AT = 0
const ARCHITECTURE_AT = 4
const argumentAt = (argument: number) => 16 + 8 * argument

type Instruction = { code: number; yes?: number; no?: number; value: number }

const load = (at: number): Instruction => ({ code: LOAD, value: at })
const end = (verdict: number): Instruction => ({ code: RETURN, value: verdict })
/** Continues with the next instruction if the comparison is true, else skips `otherwise` instructions. */
const when = (code: number, value: number, otherwise: number): Instruction => ({ code, value, no: otherwise })

/**
 * Builds a seccomp filter in the kernel's format: an array of struct sock_filter. A known call without a rule fails
 * with EPERM; a call newer than all known ones fails with ENOSYS, so that libraries fall back to older calls. A
 * program of another architecture is killed. Pure.
 */
export function seccompFilter(architecture: Architecture, rules: Rules): Buffer {
  const numbered = (Object.entries(rules) as [SystemCall, Rule][])
    .map(([call, rule]) => ({ number: numberOf(call, architecture), rule }))
    .filter((entry): entry is { number: number; rule: Rule } => entry.number !== null)
  const allowed = numbered.flatMap(({ number, rule }) => (rule === 'allow' ? [number] : []))
  const highest = Math.max(...Object.keys(SYSTEM_CALLS).map(call => numberOf(call as SystemCall, architecture) ?? 0))
  return assemble([
    load(ARCHITECTURE_AT),
    { code: JUMP_EQUAL, value: AUDIT[architecture], yes: 1 },
    end(KILL_PROCESS),
    load(NUMBER_AT),
    ...numbered.flatMap(({ number, rule }) => (rule === 'allow' ? [] : conditional(number, rule))),
    ...rangesOf(allowed).flatMap(([from, to]) => [
      when(JUMP_NOT_LESS, from, 2),
      { code: JUMP_GREATER, value: to, yes: 1 },
      end(ALLOW),
    ]),
    when(JUMP_GREATER, highest, 1),
    end(refuse(ENOSYS)),
    end(refuse(EPERM)),
  ])
}

/** Decides one call; the instructions that follow decide the others. */
function conditional(number: number, rule: Exclude<Rule, 'allow'>): Instruction[] {
  const [alternatives, then, otherwise] =
    'only' in rule ? [rule.only, ALLOW, refuse(rule.errno)] : [rule.unless, refuse(rule.errno), ALLOW]
  const body = [...alternatives.flatMap(comparisons => alternative(comparisons, then)), end(otherwise)]
  return [when(JUMP_EQUAL, number, body.length), ...body]
}

function alternative(comparisons: readonly Comparison[], verdict: number): Instruction[] {
  const body = [end(verdict)]
  for (const { argument, mask, equals } of [...comparisons].reverse()) {
    const masked = mask === undefined ? [] : [{ code: MASK, value: mask }]
    body.unshift(load(argumentAt(argument)), ...masked, when(JUMP_EQUAL, equals, body.length))
  }
  return body
}

/** Merges consecutive numbers: [1, 2, 3, 7] becomes [[1, 3], [7, 7]]. */
function rangesOf(numbers: readonly number[]): [number, number][] {
  const ranges: [number, number][] = []
  for (const number of [...numbers].sort((one, other) => one - other)) {
    const last = ranges.at(-1)
    if (last !== undefined && number <= last[1] + 1) last[1] = number
    else ranges.push([number, number])
  }
  return ranges
}

function assemble(instructions: readonly Instruction[]): Buffer {
  const filter = Buffer.alloc(instructions.length * 8)
  instructions.forEach(({ code, yes = 0, no = 0, value }, index) => {
    filter.writeUInt16LE(code, index * 8)
    filter.writeUInt8(yes, index * 8 + 2)
    filter.writeUInt8(no, index * 8 + 3)
    filter.writeUInt32LE(value >>> 0, index * 8 + 4)
  })
  return filter
}

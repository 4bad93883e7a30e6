/**
 * Validates a regular expression for HAProxy: the subset of PCRE2 that means the same in all its versions and
 * always compiles. Excluded are look-behind, back-references (HAProxy numbers no groups), comments, control
 * verbs, Unicode properties, and whatever else PCRE2 might reject: one such expression would block every change
 * of its load balancer.
 * @param text in printable ASCII
 * @returns the problem, phrased to follow the name of the field; null if there is none
 */
export function regularExpressionProblem(text: string): string | null {
  if (text.trim() === '') return 'is empty'
  try {
    const { cost } = parse(text)
    if (cost > MAX_COST) throw new Problem('is too large when its repetitions are expanded')
    return null
  } catch (error) {
    if (error instanceof Problem) return error.message
    throw error
  }
}

/**
 * Whether PCRE2 may reach its match limits with a valid expression. It limits steps and stack, and HAProxy
 * treats an exceeded limit as "does not match". False only if no value can have that many ways to match.
 */
export function mayExceedMatchLimit(text: string): boolean {
  return parse(text).ways > MAX_WAYS
}

class Problem extends Error {}

type Reader = {
  readonly text: string
  at: number
  depth: number
  readonly names: Set<string>
  /** Upper estimate of the ways in which PCRE2 can try a value. */
  ways: number
}

/** Far below PCRE2's limit of ten million steps. Some expressions with one unbounded repetition stay below. */
const MAX_WAYS = 100_000
/** Longest value: the size of HAProxy's buffer. */
const MAX_VALUE_LENGTH = 16_384

/** PCRE2 accepts 64 KiB of compiled code. Costs are upper estimates of the bytes of each part. */
const MAX_COST = 20_000
const MAX_DEPTH = 30
const MAX_REPETITIONS = 65_535
const COST = { character: 4, set: 40, group: 12 } as const

const POSIX_CLASS = /\[:\^?(alnum|alpha|ascii|blank|cntrl|digit|graph|lower|print|punct|space|upper|word|xdigit):\]/y
const GROUP_START = /\((?:\?(?::|=|!|>|i:|P?<([A-Za-z_][A-Za-z0-9_]{0,31})>))?/y
const QUANTIFIER = /(?:[*+?]|\{(\d{1,6})(,(\d{0,6}))?\})[+?]?/y

/** @throws Problem */
function parse(text: string): { cost: number; ways: number } {
  const reader: Reader = { text, at: 0, depth: 0, names: new Set(), ways: 1 }
  const cost = alternatives(reader)
  if (reader.at < text.length) throw new Problem('has a closing parenthesis without an opening one')
  return { cost, ways: reader.ways }
}

/** Parses up to the end of the text or group. @returns the cost */
function alternatives(reader: Reader): number {
  let cost = 0
  while (reader.at < reader.text.length && reader.text[reader.at] !== ')') {
    if (reader.text[reader.at] === '|') {
      reader.at += 1
      reader.ways *= 2
      cost += COST.character
    } else cost += repeated(reader)
  }
  return cost
}

/** Parses one part with its quantifier, if any. @returns the cost */
function repeated(reader: Reader): number {
  const part = onePart(reader)
  const quantifier = take(reader, QUANTIFIER)
  if (quantifier === null) {
    if (looksLikeQuantifier(reader)) throw new Problem('has a brace that is neither a repetition nor escaped as \\{')
    return part.cost
  }
  if (!part.repeatable) throw new Problem(`applies ${quantifier[0]} to something that cannot be repeated`)
  if (take(reader, QUANTIFIER) !== null) throw new Problem(`repeats a repetition at ${quantifier[0]}`)
  const min = Number(quantifier[1] ?? 0)
  const max = quantifier[2] === undefined || quantifier[3] === '' ? min : Number(quantifier[3])
  if (min > MAX_REPETITIONS || max > MAX_REPETITIONS || max < min) {
    throw new Problem(`has a repetition count out of range or order: ${quantifier[0]}`)
  }
  const unbounded = /^[*+]/.test(quantifier[0]) || quantifier[3] === ''
  if (part.isGroup && (unbounded || max > 1)) reader.ways = Number.POSITIVE_INFINITY
  else reader.ways *= unbounded ? MAX_VALUE_LENGTH : Math.max(2, max - min + 1)
  return COST.group + part.cost * (part.isGroup ? Math.max(1, max) : 1)
}

/** PCRE2 compiles a repeated group once per repetition, and anything else once with a counter. */
type Part = { cost: number; repeatable: boolean; isGroup?: true }

function onePart(reader: Reader): Part {
  const character = reader.text.charAt(reader.at)
  switch (character) {
    case '(':
      return group(reader)
    case '[':
      return { cost: set(reader), repeatable: true }
    case '\\':
      return escapedPart(reader)
    case '^':
    case '$':
      reader.at += 1
      return { cost: COST.character, repeatable: false }
    case '*':
    case '+':
    case '?':
      throw new Problem(`has nothing before ${character} to repeat`)
    default:
      if (looksLikeQuantifier(reader)) throw new Problem('has a brace that is neither a repetition nor escaped as \\{')
      printable(character)
      reader.at += 1
      return { cost: COST.character, repeatable: true }
  }
}

function group(reader: Reader): Part {
  if (take(reader, /\(\?i\)/y) !== null) return { cost: 0, repeatable: false }
  const start = take(reader, GROUP_START)
  const following = reader.text[reader.at]
  const plain = start?.[0] === '('
  if (start === null || (plain && (following === '?' || following === '*'))) {
    throw new Problem(
      'has an unsupported kind of group; use (...), (?:...), (?=...), (?!...), (?>...), (?i:...) or (?<name>...)',
    )
  }
  const name = start[1]
  if (name !== undefined && reader.names.has(name)) throw new Problem(`has two groups named ${name}`)
  if (name !== undefined) reader.names.add(name)
  reader.depth += 1
  if (reader.depth > MAX_DEPTH) throw new Problem(`nests more than ${MAX_DEPTH} groups`)
  const cost = COST.group + alternatives(reader)
  reader.depth -= 1
  if (reader.text[reader.at] !== ')') throw new Problem('has an opening parenthesis without a closing one')
  reader.at += 1
  return { cost, repeatable: start[0] !== '(?=' && start[0] !== '(?!', isGroup: true }
}

/** Outside sets. */
function escapedPart(reader: Reader): Part {
  if (take(reader, /\\[bBAzZ]/y) !== null) return { cost: COST.character, repeatable: false }
  escapedCharacter(reader)
  return { cost: COST.character, repeatable: true }
}

/** `\d` and similar, `\t`, `\x41`, and punctuation. @returns the code of a single character, null for a class */
function escapedCharacter(reader: Reader): number | null {
  if (take(reader, /\\[dDwWsS]/y) !== null) return null
  const control = take(reader, /\\([tnrf])/y)
  if (control !== null) return { t: 9, n: 10, r: 13, f: 12 }[control[1] as 't' | 'n' | 'r' | 'f']
  const code = take(reader, /\\x([0-9A-Fa-f]{2})/y)
  if (code !== null) return Number.parseInt(code[1] ?? '', 16)
  const literal = take(reader, /\\([!-/:-@[-`{-~ ])/y)
  if (literal !== null) return (literal[1] ?? '').charCodeAt(0)
  throw new Problem(`has an unknown escape: ${reader.text.slice(reader.at, reader.at + 2)}`)
}

/** `[...]`, in which a closing bracket at the start is literal. */
function set(reader: Reader): number {
  reader.at += 1
  if (reader.text[reader.at] === '^') reader.at += 1
  for (let first = true; first || reader.text[reader.at] !== ']'; first = false) {
    const low = setItem(reader)
    if (reader.text[reader.at] !== '-' || reader.text[reader.at + 1] === ']') continue
    reader.at += 1
    const high = setItem(reader)
    if (low === null || high === null || low > high) throw new Problem('has an invalid range in brackets')
  }
  reader.at += 1
  return COST.set
}

function setItem(reader: Reader): number | null {
  const character = reader.text.charAt(reader.at)
  if (character === '') throw new Problem('has an opening bracket without a closing one')
  if (character === '\\') return escapedCharacter(reader)
  if (/^\[[:.=]/.test(reader.text.slice(reader.at, reader.at + 2))) {
    if (take(reader, POSIX_CLASS) === null) throw new Problem('has an unknown class in brackets')
    return null
  }
  printable(character)
  reader.at += 1
  return character.charCodeAt(0)
}

/** PCRE2 versions disagree about such a brace: in newer ones, `{,3}` and `{ 1 }` are repetitions. */
function looksLikeQuantifier(reader: Reader): boolean {
  return reader.text[reader.at] === '{' && /^\{ *[\d,]/.test(reader.text.slice(reader.at))
}

function printable(character: string): void {
  if (!/^[ -~]$/.test(character)) throw new Problem('contains characters that are not printable ASCII')
}

/** @param pattern sticky, so it matches only at the reader's position */
function take(reader: Reader, pattern: RegExp): RegExpExecArray | null {
  pattern.lastIndex = reader.at
  const match = pattern.exec(reader.text)
  if (match !== null) reader.at += match[0].length
  return match
}

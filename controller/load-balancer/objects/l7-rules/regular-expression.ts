/**
 * Regular expressions as HAProxy takes them: the part of PCRE2's language whose meaning does not hang on its version and that always
 * compiles. Left out are look-behind, back-references (HAProxy numbers no groups), comments, control verbs, properties of Unicode, and
 * whatever else PCRE2 might refuse: one such expression would hold up every change to its load balancer.
 * @param text of printable ASCII
 * @returns what is wrong, to follow the name of the field; null when the expression is good
 */
export function regularExpressionProblem(text: string): string | null {
  if (text.trim() === '') return 'is empty'
  try {
    const { cost } = read(text)
    if (cost > MOST_EFFORT) throw new Problem('is too large once its repetitions are written out')
    return null
  } catch (error) {
    if (error instanceof Problem) return error.message
    throw error
  }
}

/**
 * Whether PCRE2 may give up on a good expression before it knows: it bounds its steps and its stack, and HAProxy takes that for "does not
 * match". False only when no value can have so many ways to be tried.
 */
export function mayBeGivenUp(text: string): boolean {
  return read(text).ways > MOST_WAYS
}

class Problem extends Error {}

type Reader = {
  readonly text: string
  at: number
  depth: number
  readonly names: Set<string>
  /** A generous guess at the ways in which a part of a value may be tried. */
  ways: number
}

/** Far below PCRE2's ten million steps; some expressions with one unbounded repetition stay below. */
const MOST_WAYS = 100_000
/** The longest value: HAProxy's buffer. */
const LONGEST_VALUE = 16_384

/** PCRE2 takes 64 KiB of compiled code; costs are generous guesses at the bytes of each part. */
const MOST_EFFORT = 20_000
const DEEPEST = 30
const MOST_REPETITIONS = 65_535
const COST = { character: 4, set: 40, group: 12 } as const

const POSIX_CLASS = /\[:\^?(alnum|alpha|ascii|blank|cntrl|digit|graph|lower|print|punct|space|upper|word|xdigit):\]/y
const GROUP_START = /\((?:\?(?::|=|!|>|i:|P?<([A-Za-z_][A-Za-z0-9_]{0,31})>))?/y
const QUANTIFIER = /(?:[*+?]|\{(\d{1,6})(,(\d{0,6}))?\})[+?]?/y

/** @throws Problem */
function read(text: string): { cost: number; ways: number } {
  const reader: Reader = { text, at: 0, depth: 0, names: new Set(), ways: 1 }
  const cost = alternatives(reader)
  if (reader.at < text.length) throw new Problem('has a closing parenthesis without an opening one')
  return { cost, ways: reader.ways }
}

/** Everything up to the end of the text or of the group. @returns its cost */
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

/** One part with its quantifier, if it has one. */
function repeated(reader: Reader): number {
  const part = onePart(reader)
  const quantifier = take(reader, QUANTIFIER)
  if (quantifier === null) {
    if (looksLikeQuantifier(reader)) throw new Problem('has a brace that is neither a repetition nor written as \\{')
    return part.cost
  }
  if (!part.repeatable) throw new Problem(`repeats what cannot be repeated, at ${quantifier[0]}`)
  if (take(reader, QUANTIFIER) !== null) throw new Problem(`repeats a repetition, at ${quantifier[0]}`)
  const least = Number(quantifier[1] ?? 0)
  const most = quantifier[2] === undefined || quantifier[3] === '' ? least : Number(quantifier[3])
  if (least > MOST_REPETITIONS || most > MOST_REPETITIONS || most < least) {
    throw new Problem(`has repetitions out of range or order, ${quantifier[0]}`)
  }
  const unbounded = /^[*+]/.test(quantifier[0]) || quantifier[3] === ''
  if (part.isGroup && (unbounded || most > 1)) reader.ways = Number.POSITIVE_INFINITY
  else reader.ways *= unbounded ? LONGEST_VALUE : Math.max(2, most - least + 1)
  return COST.group + part.cost * (part.isGroup ? Math.max(1, most) : 1)
}

/** A group that is repeated is compiled once for each time; anything else only with a counter. */
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
      throw new Problem(`has nothing before ${character} that it could repeat`)
    default:
      if (looksLikeQuantifier(reader)) throw new Problem('has a brace that is neither a repetition nor written as \\{')
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
      'has a kind of group that is not known: known are (...), (?:...), (?=...), (?!...), (?>...), (?i:...), (?<name>...)',
    )
  }
  const name = start[1]
  if (name !== undefined && reader.names.has(name)) throw new Problem(`has two groups with the name ${name}`)
  if (name !== undefined) reader.names.add(name)
  reader.depth += 1
  if (reader.depth > DEEPEST) throw new Problem(`nests more than ${DEEPEST} groups`)
  const cost = COST.group + alternatives(reader)
  reader.depth -= 1
  if (reader.text[reader.at] !== ')') throw new Problem('has an opening parenthesis without a closing one')
  reader.at += 1
  return { cost, repeatable: start[0] !== '(?=' && start[0] !== '(?!', isGroup: true }
}

/** Outside of sets. */
function escapedPart(reader: Reader): Part {
  if (take(reader, /\\[bBAzZ]/y) !== null) return { cost: COST.character, repeatable: false }
  escapedCharacter(reader)
  return { cost: COST.character, repeatable: true }
}

/** `\d` and its like, `\t`, `\x41`, and punctuation. @returns the code of a single character, null for a class of them */
function escapedCharacter(reader: Reader): number | null {
  if (take(reader, /\\[dDwWsS]/y) !== null) return null
  const control = take(reader, /\\([tnrf])/y)
  if (control !== null) return { t: 9, n: 10, r: 13, f: 12 }[control[1] as 't' | 'n' | 'r' | 'f']
  const code = take(reader, /\\x([0-9A-Fa-f]{2})/y)
  if (code !== null) return Number.parseInt(code[1] ?? '', 16)
  const literal = take(reader, /\\([!-/:-@[-`{-~ ])/y)
  if (literal !== null) return (literal[1] ?? '').charCodeAt(0)
  throw new Problem(`has an escape that is not known, ${reader.text.slice(reader.at, reader.at + 2)}`)
}

/** `[...]`: a closing bracket that comes first stands for itself. */
function set(reader: Reader): number {
  reader.at += 1
  if (reader.text[reader.at] === '^') reader.at += 1
  for (let first = true; first || reader.text[reader.at] !== ']'; first = false) {
    const low = setItem(reader)
    if (reader.text[reader.at] !== '-' || reader.text[reader.at + 1] === ']') continue
    reader.at += 1
    const high = setItem(reader)
    if (low === null || high === null || low > high) throw new Problem('has a range in brackets that is none')
  }
  reader.at += 1
  return COST.set
}

function setItem(reader: Reader): number | null {
  const character = reader.text.charAt(reader.at)
  if (character === '') throw new Problem('has an opening bracket without a closing one')
  if (character === '\\') return escapedCharacter(reader)
  if (/^\[[:.=]/.test(reader.text.slice(reader.at, reader.at + 2))) {
    if (take(reader, POSIX_CLASS) === null) throw new Problem('has a class in brackets that is not known')
    return null
  }
  printable(character)
  reader.at += 1
  return character.charCodeAt(0)
}

/** Versions of PCRE2 differ in what such a brace means: `{,3}` and `{ 1 }` are repetitions to the newer ones. */
function looksLikeQuantifier(reader: Reader): boolean {
  return reader.text[reader.at] === '{' && /^\{ *[\d,]/.test(reader.text.slice(reader.at))
}

function printable(character: string): void {
  if (!/^[ -~]$/.test(character)) throw new Problem('holds characters that are not printable ASCII')
}

/** @param pattern sticky: it is tried at the place of the reader only */
function take(reader: Reader, pattern: RegExp): RegExpExecArray | null {
  pattern.lastIndex = reader.at
  const match = pattern.exec(reader.text)
  if (match !== null) reader.at += match[0].length
  return match
}

/**
 * HAProxy's quoting rules, written from its manual and independent of the writer: how a file splits into lines
 * and words, a log format into text and expressions, and an expression into fetches and arguments.
 */

/**
 * The words of every line, without comments and empty lines. @throws Error for an unclosed quote, and where
 * HAProxy expands its environment
 */
export function parseConfiguration(text: string): string[][] {
  return text
    .split(/\r\n|\r|\n/)
    .map(wordsOf)
    .filter(words => words.length > 0)
}

const ESCAPES: Readonly<Record<string, string>> = { n: '\n', r: '\r', t: '\t' }

function wordsOf(line: string): string[] {
  const words: string[] = []
  let word: string | null = null
  let quote: '"' | "'" | null = null
  for (let at = 0; at < line.length; at++) {
    const character = line.charAt(at)
    if (quote === "'") {
      if (character === "'") quote = null
      else word += character
    } else if (quote === null && character === '#') break
    else if (quote === null && /[ \t\v\f]/.test(character)) {
      if (word !== null) words.push(word)
      word = null
    } else if (character === '"' || (character === "'" && quote === null)) {
      quote = quote === null ? character : null
      word ??= ''
    } else if (character === '\\') {
      const code = /^x([0-9a-f]{2})/i.exec(line.slice(at + 1))?.[1]
      const following = line.charAt(++at)
      if (code !== undefined) at += 2
      word =
        (word ?? '') +
        (code === undefined ? (ESCAPES[following] ?? following) : String.fromCharCode(Number.parseInt(code, 16)))
    } else if (quote === '"' && character === '$') throw new Error(`The environment is expanded: ${line}`)
    else word = (word ?? '') + character
  }
  if (quote !== null) throw new Error(`A quote is not closed: ${line}`)
  return word === null ? words : [...words, word]
}

/** What a word means to HAProxy: text, a format of text and expressions, or an expression. */
export type Meaning =
  | string
  | { format: (string | { expression: Call[] } | { variable: string })[] }
  | { expression: Call[] }
type Call = { name: string; arguments: string[] }

/** The meaning of every word, line by line. */
export const meaningOf = (text: string): Meaning[][] => parseConfiguration(text).map(meaningOfLine)

function meaningOfLine(words: string[]): Meaning[] {
  const [first, second] = words
  return words.map((word, index) => {
    const before = words[index - 1]
    const isFormat =
      (first === 'log-format' && index === 1) ||
      (first === 'use_backend' && index === 1) ||
      ((first === 'http-request' || first === 'http-after-response') && second === 'set-header' && index === 3) ||
      (first === 'http-request' && second === 'redirect' && (before === 'location' || before === 'prefix')) ||
      (first === 'http-check' && words[index - 2] === 'hdr')
    if (isFormat) return { format: formatOf(word) }
    const isExpression =
      (first === 'acl' && index === 2) ||
      (first === 'stick' && index === 2) ||
      (first === 'server' && before === 'sni') ||
      (first === 'http-request' && before?.startsWith('set-var(') === true)
    return isExpression ? { expression: expressionOf(word) } : word
  })
}

/** `%%` is a percent sign, `%[...]` an expression; anything else after a percent sign is a variable. */
function formatOf(word: string): (string | { expression: Call[] } | { variable: string })[] {
  const parts: (string | { expression: Call[] } | { variable: string })[] = []
  let literal = ''
  const flush = () => {
    if (literal !== '') parts.push(literal)
    literal = ''
  }
  for (let at = 0; at < word.length; at++) {
    if (word[at] !== '%') literal += word[at]
    else if (word[at + 1] === '%') {
      literal += '%'
      at++
    } else {
      flush()
      const flags = /^\{[^}]*\}/.exec(word.slice(at + 1))?.[0] ?? ''
      const start = at + 1 + flags.length
      if (word[start] === '[') {
        const end = endOfExpression(word, start + 1)
        parts.push({ expression: expressionOf(word.slice(start + 1, end)) })
        at = end
      } else {
        const name = /^[A-Za-z]+/.exec(word.slice(start))?.[0]
        if (name === undefined) throw new Error(`A percent sign without a meaning: ${word}`)
        parts.push({ variable: flags + name })
        at = start + name.length - 1
      }
    }
  }
  flush()
  return parts
}

/** The place of the bracket that ends an expression: the first outside quotes and parentheses. */
function endOfExpression(word: string, from: number): number {
  let depth = 0
  let quoted = false
  for (let at = from; at < word.length; at++) {
    if (word[at] === '"') quoted = !quoted
    else if (!quoted && word[at] === '(') depth++
    else if (!quoted && word[at] === ')') depth--
    else if (!quoted && depth === 0 && word[at] === ']') return at
  }
  throw new Error(`An expression is not closed: ${word}`)
}

/** A fetch and its converters, with their arguments. */
function expressionOf(text: string): Call[] {
  const calls: Call[] = []
  for (let at = 0; at < text.length; at++) {
    const name = /^[A-Za-z0-9_.]+/.exec(text.slice(at))?.[0]
    if (name === undefined) throw new Error(`Not an expression: ${text}`)
    at += name.length
    const call: Call = { name, arguments: [] }
    if (text[at] === '(') {
      const { values, end } = argumentsOf(text, at + 1)
      call.arguments = values
      at = end + 1
    }
    calls.push(call)
    if (at < text.length && text[at] !== ',') throw new Error(`Not an expression: ${text}`)
  }
  return calls
}

function argumentsOf(text: string, from: number): { values: string[]; end: number } {
  const values = ['']
  let quote = ''
  const add = (character: string) => values.push((values.pop() ?? '') + character)
  for (let at = from; at < text.length; at++) {
    const character = text.charAt(at)
    if (quote !== '' && character === quote) quote = ''
    else if (quote !== "'" && character === '\\') add(text.charAt(++at))
    else if (quote !== '') add(character)
    else if (character === '"' || character === "'") quote = character
    else if (character === ',') values.push('')
    else if (character === ')') return { values, end: at }
    else add(character)
  }
  throw new Error(`Arguments are not closed: ${text}`)
}

/** The words of keepalived's configuration, line by line, without comments. */
export const keepalivedWords = (text: string): string[][] =>
  text
    .split('\n')
    .map(line => line.replace(/[#!].*/, '').match(/\S+/g) ?? [])
    .filter(words => words.length > 0)

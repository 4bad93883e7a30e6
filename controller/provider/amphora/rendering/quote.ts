import ipaddr from 'ipaddr.js'
import { type PingQuestion, parsePingQuestion, pingQuestion } from '../../../../amphora-agent/protocol/ping.js'
import { regularExpressionProblem } from '../../../load-balancer/objects/l7-rules/regular-expression.js'
import { ProvisioningFault } from '../../provider.js'

/**
 * The one writer of configuration text. Whatever stands in a configuration file of HAProxy or keepalived was made by a function of this
 * file, which quotes a value, or refuses it with a ProvisioningFault that names it. Templates take nothing else.
 */
export type ConfigurationWord = Word

/** A class for its private field, which nothing outside this file can forge; it is not exported. */
class Word {
  readonly #text: string

  constructor(text: string) {
    this.#text = text
  }

  static textOf(candidate: object): string | null {
    return #text in candidate ? candidate.#text : null
  }
}

const word = (text: string): ConfigurationWord => new Word(text)

/** The text of a word; null for anything that this file did not make. */
export function textIfWord(candidate: unknown): string | null {
  return typeof candidate === 'object' && candidate !== null ? Word.textOf(candidate) : null
}

/** @throws TypeError for anything that this file did not make: a bug of ours, never bad input */
export function textOf(candidate: unknown): string {
  const text = textIfWord(candidate)
  if (text === null) {
    throw new TypeError(`A ${typeof candidate} that the configuration writer did not make was about to be written.`)
  }
  return text
}

/** Any text as one argument, in strong quotes, within which HAProxy expands nothing. */
export function quoted(text: string, what: string): ConfigurationWord {
  return word(inStrongQuotes(refuseControls(refuseEmpty(text, what), what)))
}

/**
 * One argument that HAProxy expands as a log format. The literal parts are ours and expand; the values are the tenant's and stand for themselves.
 * @example logFormat`${projectId} %ci %{+Q}r`
 */
export function logFormat(literals: TemplateStringsArray, ...values: string[]): ConfigurationWord {
  const parts = literals.map((literal, index) => {
    const value = values[index]
    return value === undefined ? literal : literal + refuseControls(value, 'a logged value').replaceAll('%', '%%')
  })
  return word(inStrongQuotes(parts.join('')))
}

/** A header's value where HAProxy expands a log format: the text stands for itself. */
export function headerValue(text: string, what: string): ConfigurationWord {
  return word(inStrongQuotes(refuseControls(refuseEmpty(text, what), what).replaceAll('%', '%%')))
}

/** Path and query of a request line: it starts with a slash and holds visible ASCII only, for a blank would end it. */
export function requestTarget(text: string, what: string): ConfigurationWord {
  if (!/^\/[\x21-\x7e]*$/.test(text)) {
    throw refusal(what, text, 'must begin with / and hold neither blanks nor characters outside ASCII')
  }
  return word(inStrongQuotes(text))
}

/** The method of a request line. */
export function httpMethod(text: string, what: string): ConfigurationWord {
  return matching(text, /^[A-Z]{1,16}$/, what, 'must be a method in capital letters')
}

/** HTTP status codes and ranges of them, `200-204,301`; blanks around the commas are dropped. */
export function statusCodes(text: string, what: string): ConfigurationWord {
  const codes = text.split(',').map(code => code.trim())
  for (const code of codes) {
    const [first, last = first] = /^[1-5]\d\d(-[1-5]\d\d)?$/.test(code) ? code.split('-') : []
    if (first === undefined || last === undefined || first > last) {
      throw refusal(what, text, 'must be codes from 100 to 599, or ranges of them, separated by commas')
    }
  }
  return word(codes.join(','))
}

/** A pattern of an ACL that stands for itself; what it is compared with may hold tabs. */
export function pattern(text: string, what: string): ConfigurationWord {
  refuseControls(refuseEmpty(text, what).replaceAll('\t', ' '), what)
  return word(inStrongQuotes(text))
}

/** A pattern of an ACL that HAProxy compiles as a regular expression. */
export function regularExpression(text: string, what: string): ConfigurationWord {
  const problem = regularExpressionProblem(text)
  if (problem !== null) throw refusal(what, text, problem)
  return quoted(text, what)
}

/**
 * The criterion and match of an ACL that is true for a value of which HAProxy does not know whether the expression matches it: PCRE2 gave up. The same
 * expression finds its place, or nothing, in a value that is then replaced by nothing as a whole; only one that was given up stays.
 */
export function givenUp(criterion: ConfigurationWord, expression: string, ignoreCase: boolean): ConfigurationWord {
  const whole = inStrongQuotes(`^(?:.*?(?:${expression})|).*$`)
  // quoted for the arguments of the converter, and with it for the line
  const replaced = inStrongQuotes(`,regsub(${whole},''${ignoreCase ? ',i' : ''})`)
  return word(`${textOf(criterion)}${replaced} -m len 1:`)
}

/** The values of a header or cookie of the request, by its name: what `criterion("<name>")` fetches. */
export function requestField(
  criterion: 'req.hdr' | 'req.fhdr' | 'req.cook',
  name: string,
  what: string,
): ConfigurationWord {
  // within the quotes a comma or an apostrophe of the name is no syntax of the fetch's arguments
  return word(inStrongQuotes(`${criterion}("${requireFieldName(name, what)}")`))
}

function requireFieldName(name: string, what: string): string {
  if (/^[A-Za-z0-9!#$%&'*+,.^_`|~-]{1,255}$/.test(name)) return name
  throw refusal(what, name, 'is not the name of a header or cookie')
}

/**
 * Where a redirect leads, as HAProxy expands it: the text stands for itself. What a URL holds beyond ASCII is encoded with percent signs, as
 * browsers do.
 */
export function redirectLocation(text: string, what: string): ConfigurationWord {
  if (!/^https?:\/\/[^/?#]/i.test(text) || /[\p{Z}]/u.test(refuseControls(text, what))) {
    throw refusal(what, text, 'must begin with http:// or https:// and a host, and hold no blanks')
  }
  return word(inStrongQuotes(text.replaceAll(/[^!-~]+/g, encodeURIComponent).replaceAll('%', '%%')))
}

const REDIRECT_CODES: readonly number[] = [301, 302, 303, 307, 308]

/** The status of a redirect. */
export function redirectCode(code: number, what: string): ConfigurationWord {
  if (!REDIRECT_CODES.includes(code)) throw refusal(what, String(code), `must be one of ${REDIRECT_CODES.join(', ')}`)
  return word(String(code))
}

/** The name of a cookie that HAProxy sets. */
export function cookieName(text: string, what: string): ConfigurationWord {
  return word(inStrongQuotes(requireFieldName(text, what)))
}

/** The value that a cookie gets by the response. */
export function responseCookie(name: string, what: string): ConfigurationWord {
  return word(inStrongQuotes(`res.cook("${requireFieldName(name, what)}")`))
}

/** A host name as TLS sends it, plain enough for the runtime socket. */
export function serverName(text: string, what: string): ConfigurationWord {
  return matching(text, /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}$/, what, 'is not a host name')
}

/** What HAProxy asks the agent about a member that is pinged. */
export function pingMessage(question: PingQuestion, what: string): ConfigurationWord {
  const text = pingQuestion(question)
  if (parsePingQuestion(text) === null) throw refusal(what, text, 'is no question that the agent understands')
  return word(text)
}

/** A name of ours: an id, or ids joined by a colon. */
export function identifier(text: string, what: string): ConfigurationWord {
  return matching(text, /^[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}$/, what, 'is not an identifier')
}

/** Constant words of this program: keywords, paths, or several of them separated by single blanks. */
export function keywords(text: string): ConfigurationWord {
  return matching(text, /^[A-Za-z0-9_./:-]+( [A-Za-z0-9_./:-]+)*$/, 'A keyword', 'is not made of plain words')
}

/** A constant expression of this program that fetches a sample, with its converters and arguments, or such as part of a directive. */
export function sample(text: string): ConfigurationWord {
  return matching(text, /^[a-z_.]+(\([a-z0-9_.:,]*\))?([ ,][a-z_.]+(\([a-z0-9_.:,]*\))?)*$/, 'A sample', 'is not plain')
}

/** Several words with single blanks between them. Many a template's loop costs more than what it prints. */
export function joined(words: readonly ConfigurationWord[]): ConfigurationWord {
  return word(words.map(textOf).join(' '))
}

/** The action that keeps a name of ours in a variable. */
export function keepIn(variable: 'txn.krater_pool', name: ConfigurationWord): ConfigurationWord {
  return word(`set-var(${variable}) str(${textOf(name)})`)
}

/** The name of an ACL as a condition: that it matches, or that it does not. */
export function condition(acl: ConfigurationWord, invert: boolean): ConfigurationWord {
  return invert ? word(`!${textOf(acl)}`) : acl
}

/** A whole number from `min` to `max`. */
export function integer(value: number, what: string, min: number, max: number): ConfigurationWord {
  if (!Number.isInteger(value) || value < min || value > max) {
    throw refusal(what, String(value), `must be a whole number from ${min} to ${max}`)
  }
  return word(String(value))
}

/** HAProxy refuses longer times: some 24.8 days in milliseconds. */
const LONGEST_MILLISECONDS = 2_147_483_647

/** A timeout. Zero means none to the API; HAProxy warns of that, so it becomes the longest time that HAProxy knows. */
export function milliseconds(value: number, what: string): ConfigurationWord {
  integer(value, what, 0, Number.MAX_SAFE_INTEGER)
  return word(`${value === 0 ? LONGEST_MILLISECONDS : Math.min(value, LONGEST_MILLISECONDS)}ms`)
}

/** A time of a health check, at least one second, for HAProxy refuses zero. */
export function seconds(value: number, what: string): ConfigurationWord {
  integer(value, what, 0, Number.MAX_SAFE_INTEGER)
  return word(`${Math.min(Math.max(value, 1), Math.floor(LONGEST_MILLISECONDS / 1000))}s`)
}

/** Plain and canonical as it stands; most addresses are, and taking them apart would be most of the work of a server line. */
const PLAIN_IPV4 = /^(?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(?:\.(?!$)|$)){4}$/

/** An IPv4 or IPv6 address, in its canonical form. */
export function address(text: string, what: string): ConfigurationWord {
  if (PLAIN_IPV4.test(text)) return word(text)
  return word(parseAddress(text, what).toString())
}

/** An address where HAProxy would take what follows the last colon of a bare IPv6 address for a port. */
export function bracketedAddress(text: string, what: string): ConfigurationWord {
  return word(inBrackets(parseAddress(text, what)))
}

/** `address:port`, IPv6 in brackets. */
export function endpoint(host: string, port: number, what: string): ConfigurationWord {
  const portText = textOf(integer(port, `${what}, port`, 1, 65535))
  if (PLAIN_IPV4.test(host)) return word(`${host}:${portText}`)
  return word(`${inBrackets(parseAddress(host, what))}:${portText}`)
}

/** An address with its prefix length, as it is written (the host part is kept). */
export function cidr(text: string, what: string): ConfigurationWord {
  const [host, prefix, ...rest] = text.split('/')
  if (host === undefined || prefix === undefined || rest.length > 0 || !/^\d{1,3}$/.test(prefix)) {
    throw refusal(what, text, 'is not an address with a prefix length')
  }
  const parsed = parseAddress(host, what)
  const length = textOf(integer(Number(prefix), `${what}, prefix length`, 0, parsed.kind() === 'ipv4' ? 32 : 128))
  return word(`${parsed.toString()}/${length}`)
}

/** The address alone as a host route: /32 or /128. */
export function hostCidr(text: string, what: string): ConfigurationWord {
  const parsed = parseAddress(text, what)
  return word(`${parsed.toString()}/${parsed.kind() === 'ipv4' ? 32 : 128}`)
}

/** ipaddr.js also takes octal, short and zoned forms, which other programs read differently; only the plain ones pass. */
function parseAddress(text: string, what: string): ipaddr.IPv4 | ipaddr.IPv6 {
  if (ipaddr.IPv4.isValidFourPartDecimal(text)) return ipaddr.IPv4.parse(text)
  if (!text.includes('%') && ipaddr.IPv6.isValid(text)) return ipaddr.IPv6.parse(text)
  throw refusal(what, text, 'is not an IP address')
}

function inBrackets(parsed: ipaddr.IPv4 | ipaddr.IPv6): string {
  return parsed.kind() === 'ipv4' ? parsed.toString() : `[${parsed.toString()}]`
}

function inStrongQuotes(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`
}

function matching(text: string, pattern: RegExp, what: string, problem: string): ConfigurationWord {
  if (!pattern.test(text)) throw refusal(what, text, problem)
  return word(text)
}

/** HAProxy takes an empty argument for a missing one. */
function refuseEmpty(text: string, what: string): string {
  if (text.trim() === '') throw refusal(what, text, 'is empty')
  return text
}

/** Line breaks would begin a new directive; other controls, and halves of surrogate pairs, have no business in a configuration. */
function refuseControls(text: string, what: string): string {
  if (/[\p{Cc}\p{Cs}\u2028\u2029]/u.test(text)) throw refusal(what, text, 'holds control characters')
  return text
}

/** The refused text is shown shortened and with every invisible character escaped, so that it cannot deface a log or an answer. */
function refusal(what: string, text: string, problem: string): ProvisioningFault {
  const shown = JSON.stringify(text.length > 80 ? `${text.slice(0, 80)}...` : text).replaceAll(
    /(?! )[\p{C}\p{Z}]/gu,
    character => `\\u{${character.codePointAt(0)?.toString(16)}}`,
  )
  return new ProvisioningFault('configuration-refused', `${what} ${problem}: ${shown}.`)
}

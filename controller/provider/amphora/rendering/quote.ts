import ipaddr from 'ipaddr.js'
import { type PingQuestion, parsePingQuestion, pingQuestion } from '../../../../amphora-agent/protocol/ping.js'
import { regularExpressionProblem } from '../../../load-balancer/objects/l7-rules/regular-expression.js'
import { ProvisioningFault } from '../../provider.js'

/**
 * A piece of configuration text. Every value in a configuration file of HAProxy or keepalived comes from a function of
 * this file, which quotes it or throws a ProvisioningFault that names it. Templates accept nothing else.
 */
export type ConfigurationWord = Word

/** Not exported, and with a private field, so that no other file can forge one. */
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

/** The text of a word; null for anything that this file did not create. */
export function textIfWord(candidate: unknown): string | null {
  return typeof candidate === 'object' && candidate !== null ? Word.textOf(candidate) : null
}

/** @throws TypeError for anything that this file did not create, which is a bug and never bad input */
export function textOf(candidate: unknown): string {
  const text = textIfWord(candidate)
  if (text === null) {
    throw new TypeError(`A ${typeof candidate} did not come from quote.ts and must not be written to a configuration.`)
  }
  return text
}

/** Any text as one argument, in strong quotes, where HAProxy expands nothing. */
export function quoted(text: string, what: string): ConfigurationWord {
  return word(inStrongQuotes(refuseControls(refuseEmpty(text, what), what)))
}

/**
 * One argument that HAProxy expands as a log format. Literal parts, written in this program, are expanded;
 * values, which come from tenants, are not.
 * @example logFormat`${projectId} %ci %{+Q}r`
 */
export function logFormat(literals: TemplateStringsArray, ...values: string[]): ConfigurationWord {
  const parts = literals.map((literal, index) => {
    const value = values[index]
    return value === undefined ? literal : literal + refuseControls(value, 'a logged value').replaceAll('%', '%%')
  })
  return word(inStrongQuotes(parts.join('')))
}

/** A literal header value where HAProxy would expand a log format. */
export function headerValue(text: string, what: string): ConfigurationWord {
  return word(inStrongQuotes(refuseControls(refuseEmpty(text, what), what).replaceAll('%', '%%')))
}

/** Path and query of a request line. Starts with a slash; visible ASCII only, since a blank would end it. */
export function requestTarget(text: string, what: string): ConfigurationWord {
  if (!/^\/[\x21-\x7e]*$/.test(text)) {
    throw refusal(what, text, 'must start with / and contain only visible ASCII characters')
  }
  return word(inStrongQuotes(text))
}

/** The method of a request line. */
export function httpMethod(text: string, what: string): ConfigurationWord {
  return matching(text, /^[A-Z]{1,16}$/, what, 'must be 1 to 16 capital letters')
}

/** HTTP status codes and ranges, such as `200-204,301`. Drops blanks around the commas. */
export function statusCodes(text: string, what: string): ConfigurationWord {
  const codes = text.split(',').map(code => code.trim())
  for (const code of codes) {
    const [first, last = first] = /^[1-5]\d\d(-[1-5]\d\d)?$/.test(code) ? code.split('-') : []
    if (first === undefined || last === undefined || first > last) {
      throw refusal(what, text, 'must be a comma-separated list of codes from 100 to 599 or ranges of them')
    }
  }
  return word(codes.join(','))
}

/** A literal ACL pattern. Tabs are allowed: the values it is compared with may contain them. */
export function pattern(text: string, what: string): ConfigurationWord {
  refuseControls(refuseEmpty(text, what).replaceAll('\t', ' '), what)
  return word(inStrongQuotes(text))
}

/** An ACL pattern that HAProxy compiles as a regular expression. */
export function regularExpression(text: string, what: string): ConfigurationWord {
  const problem = regularExpressionProblem(text)
  if (problem !== null) throw refusal(what, text, problem)
  return quoted(text, what)
}

/**
 * Criterion and match of an ACL that is true if PCRE2 gives up on the expression, so that HAProxy cannot tell
 * whether the value matches. The converter replaces the whole value by nothing, whether or not it contains a
 * match. Only when PCRE2 gives up does the value remain.
 */
export function gaveUp(criterion: ConfigurationWord, expression: string, ignoreCase: boolean): ConfigurationWord {
  const whole = inStrongQuotes(`^(?:.*?(?:${expression})|).*$`)
  // Quoted twice: as an argument of the converter, and with it as a word of the line.
  const replaced = inStrongQuotes(`,regsub(${whole},''${ignoreCase ? ',i' : ''})`)
  return word(`${textOf(criterion)}${replaced} -m len 1:`)
}

/** The sample fetch `criterion("<name>")` for a header or cookie of the request. */
export function requestField(
  criterion: 'req.hdr' | 'req.fhdr' | 'req.cook',
  name: string,
  what: string,
): ConfigurationWord {
  // The quotes keep a comma or an apostrophe in the name from being syntax of the fetch's arguments.
  return word(inStrongQuotes(`${criterion}("${requireFieldName(name, what)}")`))
}

function requireFieldName(name: string, what: string): string {
  if (/^[A-Za-z0-9!#$%&'*+,.^_`|~-]{1,255}$/.test(name)) return name
  throw refusal(what, name, 'is not the name of a header or cookie')
}

/**
 * The literal target of a redirect, where HAProxy would expand a log format. Characters outside ASCII are
 * percent-encoded, as browsers do.
 */
export function redirectLocation(text: string, what: string): ConfigurationWord {
  if (!/^https?:\/\/[^/?#]/i.test(text) || /[\p{Z}]/u.test(refuseControls(text, what))) {
    throw refusal(what, text, 'must start with http:// or https:// and a host, and contain no blanks')
  }
  return word(inStrongQuotes(text.replaceAll(/[^!-~]+/g, encodeURIComponent).replaceAll('%', '%%')))
}

const REDIRECT_CODES: readonly number[] = [301, 302, 303, 307, 308]

/** Status code of a redirect. */
export function redirectCode(code: number, what: string): ConfigurationWord {
  if (!REDIRECT_CODES.includes(code)) throw refusal(what, String(code), `must be one of ${REDIRECT_CODES.join(', ')}`)
  return word(String(code))
}

/** Name of a cookie that HAProxy sets. */
export function cookieName(text: string, what: string): ConfigurationWord {
  return word(inStrongQuotes(requireFieldName(text, what)))
}

/** The sample fetch for the value that the response sets for a cookie. */
export function responseCookie(name: string, what: string): ConfigurationWord {
  return word(inStrongQuotes(`res.cook("${requireFieldName(name, what)}")`))
}

/** The words that make HAProxy ask a member for this name. */
export function sniOf(name: string): ConfigurationWord {
  return word(`sni str(${textOf(serverName(name, 'A server name'))})`)
}

/** A TLS server name, restricted to characters that are safe for the runtime socket. */
export function serverName(text: string, what: string): ConfigurationWord {
  return matching(text, /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}$/, what, 'is not a host name')
}

/** The sample fetch for a field of the distinguished name in a client's certificate, such as CN. */
export function certificateField(name: string, what: string): ConfigurationWord {
  if (!/^[A-Za-z][A-Za-z0-9-]{0,63}$/.test(name)) throw refusal(what, name, 'is not a field of a distinguished name')
  return word(`'ssl_c_s_dn(${name})'`)
}

/** An OpenSSL cipher string. */
export function cipherString(text: string, what: string): ConfigurationWord {
  return matching(text, /^[A-Za-z0-9\-+!:@=_.]{1,4096}$/, what, 'is not a cipher string')
}

/** The question HAProxy sends to the agent about a member with a PING monitor. */
export function pingMessage(question: PingQuestion, what: string): ConfigurationWord {
  const text = pingQuestion(question)
  if (parsePingQuestion(text) === null) throw refusal(what, text, 'is not a valid ping check')
  return word(text)
}

/** A name that this program chooses: an id, or ids joined by a colon. */
export function identifier(text: string, what: string): ConfigurationWord {
  return matching(text, /^[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}$/, what, 'is not an identifier')
}

/** Constants of this program: keywords and paths, separated by single blanks. */
export function keywords(text: string): ConfigurationWord {
  return matching(
    text,
    /^[A-Za-z0-9_.,@/:-]+( [A-Za-z0-9_.,@/:-]+)*$/,
    'A keyword',
    'contains characters that are not allowed',
  )
}

/** A constant sample expression of this program, with converters and arguments, or a directive's part with one. */
export function sample(text: string): ConfigurationWord {
  return matching(
    text,
    /^[a-z_.]+(\([a-z0-9_.:,]*\))?([ ,][a-z_.]+(\([a-z0-9_.:,]*\))?)*$/,
    'A sample',
    'contains characters that are not allowed',
  )
}

/** Joins words with single blanks. A loop in a template often costs more than what it prints. */
export function joined(words: readonly ConfigurationWord[]): ConfigurationWord {
  return word(
    words
      .map(textOf)
      .filter(text => text !== '')
      .join(' '),
  )
}

/** The action that stores a name in a variable. */
export function storeIn(variable: 'txn.krater_pool', name: ConfigurationWord): ConfigurationWord {
  return word(`set-var(${variable}) str(${textOf(name)})`)
}

/** A condition that is true if an ACL matches, or, with `invert`, if it does not. */
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

/** HAProxy's limit: 2^31 - 1 ms, some 24.8 days. */
const MAX_MILLISECONDS = 2_147_483_647

/** A timeout. In the API, 0 means none; HAProxy warns about 0, so it becomes HAProxy's maximum. */
export function milliseconds(value: number, what: string): ConfigurationWord {
  integer(value, what, 0, Number.MAX_SAFE_INTEGER)
  return word(`${value === 0 ? MAX_MILLISECONDS : Math.min(value, MAX_MILLISECONDS)}ms`)
}

/** A time of a health check, at least 1 s, since HAProxy refuses 0. */
export function seconds(value: number, what: string): ConfigurationWord {
  integer(value, what, 0, Number.MAX_SAFE_INTEGER)
  return word(`${Math.min(Math.max(value, 1), Math.floor(MAX_MILLISECONDS / 1000))}s`)
}

/** Canonical already, like most addresses. Parsing them would take most of the time of rendering a server line. */
const PLAIN_IPV4 = /^(?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(?:\.(?!$)|$)){4}$/

/** An IPv4 or IPv6 address in canonical form. */
export function address(text: string, what: string): ConfigurationWord {
  if (PLAIN_IPV4.test(text)) return word(text)
  return word(parseAddress(text, what).toString())
}

/** An address with IPv6 in brackets, where HAProxy would take the end of a bare one for a port. */
export function bracketedAddress(text: string, what: string): ConfigurationWord {
  return word(inBrackets(parseAddress(text, what)))
}

/** `address:port`, with IPv6 in brackets. */
export function endpoint(host: string, port: number, what: string): ConfigurationWord {
  const portText = textOf(integer(port, `${what}, port`, 1, 65535))
  if (PLAIN_IPV4.test(host)) return word(`${host}:${portText}`)
  return word(`${inBrackets(parseAddress(host, what))}:${portText}`)
}

/** An address with its prefix length. Keeps the host part. */
export function cidr(text: string, what: string): ConfigurationWord {
  const [host, prefix, ...rest] = text.split('/')
  if (host === undefined || prefix === undefined || rest.length > 0 || !/^\d{1,3}$/.test(prefix)) {
    throw refusal(what, text, 'is not an address with a prefix length')
  }
  const parsed = parseAddress(host, what)
  const length = textOf(integer(Number(prefix), `${what}, prefix length`, 0, parsed.kind() === 'ipv4' ? 32 : 128))
  return word(`${parsed.toString()}/${length}`)
}

/** An address as a host route: /32 or /128. */
export function hostCidr(text: string, what: string): ConfigurationWord {
  const parsed = parseAddress(text, what)
  return word(`${parsed.toString()}/${parsed.kind() === 'ipv4' ? 32 : 128}`)
}

/** Refuses octal, short and zoned forms: ipaddr.js accepts them, but other programs read them differently. */
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

/** HAProxy treats an empty argument as missing. */
function refuseEmpty(text: string, what: string): string {
  if (text.trim() === '') throw refusal(what, text, 'is empty')
  return text
}

/** A line break would start a new directive. Other control characters and lone surrogates are never valid. */
function refuseControls(text: string, what: string): string {
  if (/[\p{Cc}\p{Cs}\u2028\u2029]/u.test(text)) throw refusal(what, text, 'contains control characters')
  return text
}

/** Truncates the refused text and escapes invisible characters, so that it cannot garble a log or an answer. */
function refusal(what: string, text: string, problem: string): ProvisioningFault {
  const shown = JSON.stringify(text.length > 80 ? `${text.slice(0, 80)}...` : text).replaceAll(
    /(?! )[\p{C}\p{Z}]/gu,
    character => `\\u{${character.codePointAt(0)?.toString(16)}}`,
  )
  return new ProvisioningFault('configuration-refused', `${what} ${problem}: ${shown}.`)
}

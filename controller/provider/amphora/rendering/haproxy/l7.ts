import { mayExceedMatchLimit } from '../../../../load-balancer/objects/l7-rules/regular-expression.js'
import type {
  L7CompareType,
  L7PolicyNode,
  L7RuleNode,
  ListenerNode,
  PoolNode,
} from '../../../../load-balancer/tree/tree.js'
import { byId, isDesired } from '../desired-objects.js'
import {
  type ConfigurationWord,
  certificateField,
  condition,
  gaveUp,
  identifier,
  integer,
  joined,
  keywords,
  pattern,
  quoted,
  redirectCode,
  redirectLocation,
  regularExpression,
  requestField,
  storeIn,
} from '../quote.js'
import { backendIdentifier } from './backend.js'
import { isHttp } from './mode.js'
import type { CertificateErrors } from './tls.js'

/** The L7 policies of a listener in the order of evaluation. */
export type L7Model = {
  /** A rule compares the host name, so the template extracts it once per request. */
  comparesHost: boolean
  /** A rule compares the file type with a regular expression; likewise. */
  comparesFileType: boolean
  /** A policy can choose a pool. */
  choosesPool: boolean
  /** Bad certificates of clients about which there are rules. */
  handledErrors: CertificateErrors
  policies: PolicyModel[]
}

type PolicyModel = {
  /** The rules' ACLs, each starting with its name. */
  acls: ConfigurationWord[]
  /**
   * One condition for each regular expression that PCRE2 may give up on: all rules without a regular expression
   * match, and PCRE2 gave up on this one.
   */
  undecidable: ConfigurationWord[]
  /** The `http-request` action if all conditions are true. */
  action: ConfigurationWord
  conditions: ConfigurationWord
}

type Comparison = {
  criterion: ConfigurationWord
  ignoreCase?: boolean
  match: ConfigurationWord
  value: ConfigurationWord
}

const MATCH: Record<L7CompareType, ConfigurationWord> = {
  REGEX: keywords('reg'),
  STARTS_WITH: keywords('beg'),
  ENDS_WITH: keywords('end'),
  CONTAINS: keywords('sub'),
  EQUAL_TO: keywords('str'),
}

/** The host name without the port, which the template stores in a variable, and the complete header. */
const HOST_NAME = quoted('var(txn.krater_host)', 'The host name')
const HOST_HEADER = quoted('req.fhdr(host)', 'The host header')
const PATH = keywords('path')
/** What follows the last dot in the last segment of the path, without and with that dot; likewise. */
const FILE_TYPE = quoted('var(txn.krater_file_type)', 'The file type')
const DOT_AND_FILE_TYPE = quoted('var(txn.krater_dot_file_type)', 'The file type')
/** An expression that names the dot: escaped, in brackets, or as its first character. */
export const NAMES_DOT = /\\\.|\[\.|^\^?\./

/** A client's certificate: whether it sent one, and the result of its verification. */
const CLIENT_HAS_CERTIFICATE = keywords('ssl_c_used')
const CLIENT_VERIFIED = keywords('ssl_c_verify')
const INTEGER = keywords('int')

const POOL_CHOSEN = keywords('pool_chosen')
const REJECT = keywords('deny deny_status 403')
const REDIRECT_LOCATION = keywords('redirect location')
const REDIRECT_PREFIX = keywords('redirect prefix')
const CODE = keywords('code')
const IGNORE_CASE = keywords('-i')
const MATCHED_BY = keywords('-m')
/** Ends the flags, since a pattern may start with a dash. */
const PATTERNS = keywords('--')

const DEFAULT_REDIRECT_CODE = 302

/**
 * The pools that serve a listener, without duplicates: its default pool, then those of its policies by position.
 * @param pools the pools that can serve, by id
 */
export function servingPools(listener: ListenerNode, pools: ReadonlyMap<string, PoolNode>): PoolNode[] {
  const ids = [listener.defaultPoolId, ...activePolicies(listener, pools).map(targetPoolId)]
  return [...new Set(ids)].flatMap(id => (id === null ? [] : (pools.get(id) ?? [])))
}

/**
 * The policies of a listener. The first policy that matches decides, whatever its action. HAProxy would choose a
 * pool only after all rejects and redirects. Therefore the choice is stored in a variable, and later policies are
 * skipped once it is set. Each policy costs the same, however many there are.
 *
 * PCRE2 limits its effort, and HAProxy treats an expression on which it gives up as not matching. A client could
 * bypass a policy with a value that is expensive to match, so such a request is rejected, whatever the policy's
 * action.
 *
 * Omits policies and rules that are disabled or under deletion, and policies without a rule or whose pool cannot serve.
 * @param pools the pools that can serve, by id
 * @throws ProvisioningFault for a value that cannot be written
 */
export function l7Model(listener: ListenerNode, pools: ReadonlyMap<string, PoolNode>): L7Model {
  const active = activePolicies(listener, pools)
  const firstChoice = active.findIndex(policy => targetPoolId(policy) !== null)
  let comparesHost = false
  let comparesFileType = false
  const policies = active.map((policy, index) => {
    const undecided = firstChoice !== -1 && index > firstChoice ? [condition(POOL_CHOSEN, true)] : []
    const rules = activeRules(policy).map(rule => {
      const name = identifier(rule.id, 'L7 rule, id')
      const compared = comparison(rule, `L7 rule ${rule.id}`)
      comparesHost ||= compared.criterion === HOST_NAME
      comparesFileType ||= rule.type === 'FILE_TYPE' && rule.compareType === 'REGEX'
      return {
        isExpression: rule.compareType === 'REGEX',
        acl: aclOf(name, compared),
        condition: condition(name, rule.invert),
        gaveUp: gaveUpAcl(rule, compared),
      }
    })
    const plain = rules.filter(({ isExpression }) => !isExpression).map(rule => rule.condition)
    const gaveUpAcls = rules.flatMap(rule => rule.gaveUp ?? [])
    return {
      acls: [...rules.map(({ acl }) => acl), ...gaveUpAcls.map(({ acl }) => acl)],
      undecidable: gaveUpAcls.map(({ name }) => joined([...undecided, ...plain, name])),
      action: joined(actionOf(policy, listener, pools)),
      conditions: joined([...undecided, ...rules.map(rule => rule.condition)]),
    }
  })
  const handledErrors = handledErrorsOf(active.flatMap(activeRules))
  return { comparesHost, comparesFileType, choosesPool: firstChoice !== -1, handledErrors, policies }
}

/** The largest number of an error that HAProxy knows with OpenSSL 3.0. */
const LAST_ERROR = 94

/**
 * A rule about a result of the verification could never match if HAProxy refused the certificate. Only what rules name
 * is let in: other policies and the members rely on the verification.
 */
function handledErrorsOf(rules: readonly L7RuleNode[]): CertificateErrors {
  const about = rules.filter(({ type }) => type === 'SSL_VERIFY_RESULT')
  const errors = about.filter(({ invert }) => !invert).map(({ value }) => Number(value))
  const isHandled = (error: number) => error > 0 && error <= LAST_ERROR
  return about.some(({ invert }) => invert) ? null : new Set(errors.filter(isHandled))
}

function activePolicies(listener: ListenerNode, pools: ReadonlyMap<string, PoolNode>): L7PolicyNode[] {
  if (!isHttp(listener)) return []
  return listener.l7Policies
    .filter(policy => isDesired(policy) && policy.rules.some(isDesired))
    .filter(policy => policy.action !== 'REDIRECT_TO_POOL' || pools.has(policy.redirectPoolId ?? ''))
    .sort((a, b) => a.position - b.position || byId(a, b))
}

/** All rules must match, so their order is free. Regular expressions come last, because they take longest. */
function activeRules(policy: L7PolicyNode): L7RuleNode[] {
  const slowness = (rule: L7RuleNode) => (rule.compareType === 'REGEX' ? 1 : 0)
  return policy.rules.filter(isDesired).sort((a, b) => slowness(a) - slowness(b) || byId(a, b))
}

const targetPoolId = (policy: L7PolicyNode) => (policy.action === 'REDIRECT_TO_POOL' ? policy.redirectPoolId : null)

function actionOf(
  policy: L7PolicyNode,
  listener: ListenerNode,
  pools: ReadonlyMap<string, PoolNode>,
): ConfigurationWord[] {
  const what = `L7 policy ${policy.id}`
  const redirect = (kind: ConfigurationWord, url: string | null, field: string) => [
    kind,
    redirectLocation(url ?? '', `${what}, ${field}`),
    CODE,
    redirectCode(policy.redirectHttpCode ?? DEFAULT_REDIRECT_CODE, `${what}, redirect_http_code`),
  ]
  switch (policy.action) {
    case 'REJECT':
      return [REJECT]
    case 'REDIRECT_TO_URL':
      return redirect(REDIRECT_LOCATION, policy.redirectUrl, 'redirect_url')
    case 'REDIRECT_PREFIX':
      return redirect(REDIRECT_PREFIX, policy.redirectPrefix, 'redirect_prefix')
    case 'REDIRECT_TO_POOL': {
      const pool = pools.get(policy.redirectPoolId ?? '')
      if (pool === undefined) throw new TypeError(`${what} should have been omitted: its pool cannot serve.`)
      return [storeIn('txn.krater_pool', backendIdentifier(pool, listener))]
    }
  }
}

function aclOf(name: ConfigurationWord, { criterion, ignoreCase, match, value }: Comparison): ConfigurationWord {
  return joined([name, criterion, ...(ignoreCase ? [IGNORE_CASE] : []), MATCHED_BY, match, PATTERNS, value])
}

/** The ACL that is true if PCRE2 gives up on the rule; null if it never does. */
function gaveUpAcl(
  rule: L7RuleNode,
  { criterion, ignoreCase = false }: Comparison,
): { name: ConfigurationWord; acl: ConfigurationWord } | null {
  if (rule.compareType !== 'REGEX' || !mayExceedMatchLimit(rule.value)) return null
  const name = identifier(`${rule.id}.given-up`, 'L7 rule, id')
  return { name, acl: joined([name, gaveUp(criterion, rule.value, ignoreCase)]) }
}

function comparison(rule: L7RuleNode, what: string): Comparison {
  const match = MATCH[rule.compareType]
  const isExpression = rule.compareType === 'REGEX'
  const text = isExpression ? rule.value : withoutQuotes(rule.value)
  const value = isExpression ? regularExpression(text, `${what}, value`) : pattern(text, `${what}, value`)
  switch (rule.type) {
    case 'HOST_NAME':
      // The port in the header counts only if the rule names one.
      return {
        criterion: !isExpression && /:\d+$/.test(text) ? HOST_HEADER : HOST_NAME,
        ignoreCase: true,
        match,
        value,
      }
    case 'PATH':
      return { criterion: PATH, match, value }
    case 'FILE_TYPE':
      // A path without a file type matches no expression, not even an empty one: its variable is not set.
      return isExpression
        ? { criterion: NAMES_DOT.test(text) ? DOT_AND_FILE_TYPE : FILE_TYPE, match, value }
        : { criterion: PATH, match: MATCH.ENDS_WITH, value: pattern(`.${text.replace(/^\./, '')}`, `${what}, value`) }
    case 'HEADER': {
      // req.hdr splits a header at commas, so only req.fhdr can match a value with a comma.
      const fetch = !isExpression && text.includes(',') ? 'req.fhdr' : 'req.hdr'
      return { criterion: requestField(fetch, rule.key ?? '', `${what}, key`), match, value }
    }
    case 'COOKIE':
      return { criterion: requestField('req.cook', rule.key ?? '', `${what}, key`), match, value }
    case 'SSL_CONN_HAS_CERT':
      return { criterion: CLIENT_HAS_CERTIFICATE, match: INTEGER, value: keywords('1') }
    case 'SSL_VERIFY_RESULT':
      return { criterion: CLIENT_VERIFIED, match: INTEGER, value: integer(Number(text), `${what}, value`, 0, 2 ** 31) }
    case 'SSL_DN_FIELD':
      return { criterion: certificateField(rule.key ?? '', `${what}, key`), match, value }
  }
}

/** Strips enclosing double quotes, which allow a value to contain blanks at its ends. */
function withoutQuotes(value: string): string {
  return /^"(.*\S.*)"$/.exec(value)?.[1] ?? value
}

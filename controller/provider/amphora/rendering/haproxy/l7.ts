import { mayBeGivenUp } from '../../../../load-balancer/objects/l7-rules/regular-expression.js'
import type {
  L7CompareType,
  L7PolicyNode,
  L7RuleNode,
  ListenerNode,
  PoolNode,
} from '../../../../load-balancer/tree/tree.js'
import { ProvisioningFault } from '../../../provider.js'
import { byId, isDesired } from '../desired-objects.js'
import {
  type ConfigurationWord,
  condition,
  givenUp,
  identifier,
  joined,
  keepIn,
  keywords,
  pattern,
  quoted,
  redirectCode,
  redirectLocation,
  regularExpression,
  requestField,
} from '../quote.js'
import { backendIdentifier } from './backend.js'
import { isHttp } from './mode.js'

/** The L7 policies of a listener, in the order in which they are asked. */
export type L7Model = {
  /** A rule looks at the host name, which is then made ready once per request. */
  comparesHost: boolean
  /** A policy may have chosen a pool. */
  choosesPool: boolean
  policies: PolicyModel[]
}

type PolicyModel = {
  /** The ACLs of each rule, from their names on. */
  acls: ConfigurationWord[]
  /** For each of its expressions that HAProxy may give up: when all but the expressions are true and this one was given up. */
  undecidable: ConfigurationWord[]
  /** What `http-request` does when all conditions are true. */
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

/** The host name alone, as the template puts it into a variable, and the header as it came. */
const HOST_NAME = quoted('var(txn.krater_host)', 'The host name')
const HOST_HEADER = quoted('req.fhdr(host)', 'The host header')
const PATH = keywords('path')

const POOL_CHOSEN = keywords('pool_chosen')
const REJECT = keywords('deny deny_status 403')
const REDIRECT_LOCATION = keywords('redirect location')
const REDIRECT_PREFIX = keywords('redirect prefix')
const CODE = keywords('code')
const IGNORE_CASE = keywords('-i')
const MATCHED_BY = keywords('-m')
/** What follows is a pattern, even if it begins with a dash. */
const PATTERNS = keywords('--')

const DEFAULT_REDIRECT_CODE = 302

/**
 * The pools that serve a listener, each once: its default pool, then those of its policies by position.
 * @param pools those that can serve, by id
 */
export function servingPools(listener: ListenerNode, pools: ReadonlyMap<string, PoolNode>): PoolNode[] {
  const ids = [listener.defaultPoolId, ...askedPolicies(listener, pools).map(targetPoolId)]
  return [...new Set(ids)].flatMap(id => (id === null ? [] : (pools.get(id) ?? [])))
}

/**
 * The policies of a listener such that the first one that matches decides, whatever it does. To HAProxy a request that is refused or redirected
 * is over, while the choice of a pool would come after all of that; so it is kept in a variable, and once it is made, later
 * policies are not asked. Each policy costs the same, however many there are.
 *
 * PCRE2 bounds its effort, and HAProxy takes an expression that was given up for one that does not match: a client could slip past a policy by a
 * value that is laborious. Such a request is refused, whatever the policy does.
 *
 * What is disabled or under deletion is left out, and so are policies without a rule or whose pool cannot serve.
 * @param pools those that can serve, by id
 * @throws ProvisioningFault for a value that cannot be written
 */
export function l7Model(listener: ListenerNode, pools: ReadonlyMap<string, PoolNode>): L7Model {
  const asked = askedPolicies(listener, pools)
  const firstChoice = asked.findIndex(policy => targetPoolId(policy) !== null)
  let comparesHost = false
  const policies = asked.map((policy, index) => {
    const undecided = firstChoice !== -1 && index > firstChoice ? [condition(POOL_CHOSEN, true)] : []
    const rules = askedRules(policy).map(rule => {
      const name = identifier(rule.id, 'L7 rule, id')
      const compared = comparison(rule, `L7 rule ${rule.id}`)
      comparesHost ||= compared.criterion === HOST_NAME
      return {
        isExpression: rule.compareType === 'REGEX',
        acl: aclOf(name, compared),
        condition: condition(name, rule.invert),
        givenUp: givenUpAcl(rule, compared),
      }
    })
    const plain = rules.filter(({ isExpression }) => !isExpression).map(rule => rule.condition)
    const givenUps = rules.flatMap(rule => rule.givenUp ?? [])
    return {
      acls: [...rules.map(({ acl }) => acl), ...givenUps.map(({ acl }) => acl)],
      undecidable: givenUps.map(({ name }) => joined([...undecided, ...plain, name])),
      action: joined(actionOf(policy, listener, pools)),
      conditions: joined([...undecided, ...rules.map(rule => rule.condition)]),
    }
  })
  return { comparesHost, choosesPool: firstChoice !== -1, policies }
}

function askedPolicies(listener: ListenerNode, pools: ReadonlyMap<string, PoolNode>): L7PolicyNode[] {
  if (!isHttp(listener)) return []
  return listener.l7Policies
    .filter(policy => isDesired(policy) && policy.rules.some(isDesired))
    .filter(policy => policy.action !== 'REDIRECT_TO_POOL' || pools.has(policy.redirectPoolId ?? ''))
    .sort((a, b) => a.position - b.position || byId(a, b))
}

/** All must match, so their order is free: regular expressions come last, for they take longest. */
function askedRules(policy: L7PolicyNode): L7RuleNode[] {
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
      if (pool === undefined) throw new TypeError(`${what} was to be left out, for its pool cannot serve.`)
      return [keepIn('txn.krater_pool', backendIdentifier(pool, listener))]
    }
  }
}

function aclOf(name: ConfigurationWord, { criterion, ignoreCase, match, value }: Comparison): ConfigurationWord {
  return joined([name, criterion, ...(ignoreCase ? [IGNORE_CASE] : []), MATCHED_BY, match, PATTERNS, value])
}

/** The ACL that is true when HAProxy cannot know whether the rule matches; null for a rule of which it always does. */
function givenUpAcl(
  rule: L7RuleNode,
  { criterion, ignoreCase = false }: Comparison,
): { name: ConfigurationWord; acl: ConfigurationWord } | null {
  if (rule.compareType !== 'REGEX' || !mayBeGivenUp(rule.value)) return null
  const name = identifier(`${rule.id}.given-up`, 'L7 rule, id')
  return { name, acl: joined([name, givenUp(criterion, rule.value, ignoreCase)]) }
}

function comparison(rule: L7RuleNode, what: string): Comparison {
  const match = MATCH[rule.compareType]
  const isExpression = rule.compareType === 'REGEX'
  const text = isExpression ? rule.value : withoutQuotes(rule.value)
  const value = isExpression ? regularExpression(text, `${what}, value`) : pattern(text, `${what}, value`)
  switch (rule.type) {
    case 'HOST_NAME':
      // the port of the header counts only for a rule that names one
      return {
        criterion: !isExpression && /:\d+$/.test(text) ? HOST_HEADER : HOST_NAME,
        ignoreCase: true,
        match,
        value,
      }
    case 'PATH':
      return { criterion: PATH, match, value }
    case 'FILE_TYPE':
      // the path's end is its type only after a dot; a regular expression says for itself where the type begins
      return isExpression
        ? { criterion: PATH, match, value }
        : { criterion: PATH, match: MATCH.ENDS_WITH, value: pattern(`.${text.replace(/^\./, '')}`, `${what}, value`) }
    case 'HEADER': {
      // a list in a header is looked at value by value, so a comma can be found only in the line as a whole
      const fetch = !isExpression && text.includes(',') ? 'req.fhdr' : 'req.hdr'
      return { criterion: requestField(fetch, rule.key ?? '', `${what}, key`), match, value }
    }
    case 'COOKIE':
      return { criterion: requestField('req.cook', rule.key ?? '', `${what}, key`), match, value }
    case 'SSL_CONN_HAS_CERT':
    case 'SSL_VERIFY_RESULT':
    case 'SSL_DN_FIELD':
      throw new ProvisioningFault(
        'configuration-refused',
        `${what} asks for TLS (${rule.type}), which no listener ends.`,
      )
  }
}

/** A value in double quotes is what stands between them: so it may hold blanks. */
function withoutQuotes(value: string): string {
  return /^"(.*\S.*)"$/.exec(value)?.[1] ?? value
}

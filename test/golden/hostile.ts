import fc from 'fast-check'
import { mayExceedMatchLimit } from '../../controller/load-balancer/objects/l7-rules/regular-expression.js'
import { selectsCiphers } from '../../controller/options/cipher-string.js'
import type {
  HealthMonitorNode,
  L7PolicyNode,
  L7RuleNode,
  ListenerNode,
  LoadBalancerTree,
  MemberNode,
  PoolNode,
  SessionPersistence,
} from '../../controller/load-balancer/tree/tree.js'
import { aPolicy, aRule } from './l7-models.js'
import { aListener, aMember, aMonitor, aPool, aTree, uuid } from './models.js'
import { anyText } from '../support/inputs/any-text.js'
import { isHostName } from '../support/inputs/host-names.js'

/** What is special to HAProxy, to a log format, to Handlebars, to a shell, or to a careless parser. */
const FRAGMENTS = [
  ...`'"#\\%;$\`{}[]()<>|&*?~!,:/@ `,
  ...['\n', '\r', '\r\n', '\t', '\0', '\x1b', '\x7f', '\x85', '\u2028', '\u00a0', '\ufeff', '\u202e', '\ud800', 'é', '日本', '😀'],
  ...['%[src]', '%{+Q}r', '%%', '%41', '%0a', '%[env(HOME)]', '$HOME', '"${HOME}"', '\\n', '\\x0a', '\\ ', "'\\''"],
  ...['{ path /x }', '"${HOME}"', ' unless ', 'server x 1.2.3.4', ' backup', ';', 'add server b/x 1.2.3.4', '<<', ')', '",src,"'],
  ...['{{name}}', '{{{name}}}', '-i', '--', ' if TRUE', ' #', "' #", '" #', '\n    server evil 192.0.2.66:80\n', '\nglobal\n'],
  ...['/', '/a', 'GET', '200', '200-299', '192.0.2.1', '::1', '192.0.2.1:80', '127.1', 'fe80::1%lo', 'unix@/tmp/x', 'example.org'],
]

export const nastyText = (): fc.Arbitrary<string> =>
  fc.oneof(
    fc.array(fc.constantFrom(...FRAGMENTS), { maxLength: 6 }).map(parts => parts.join('')),
    fc.array(fc.constantFrom(...FRAGMENTS), { maxLength: 6 }).map(parts => `/${parts.join('')}`),
    anyText({ maxLength: 20 }),
    fc.string({ unit: 'binary-ascii', maxLength: 20 }),
  )

/** The same without what most fields refuse at once: blanks, control characters and non-ASCII. */
export const nastyToken = (): fc.Arbitrary<string> =>
  fc
    .array(fc.constantFrom(...FRAGMENTS.filter(fragment => /^[!-~]+$/.test(fragment))), { minLength: 1, maxLength: 6 })
    .map(parts => parts.join(''))

export type StringField = {
  name: string
  /** A text without special meaning that gives the same structure as the given one. */
  harmless: (text: string) => string
  /** A load balancer with the text in this field. */
  treeWith: (text: string) => LoadBalancerTree
  /** What the API checks and the writer cannot; default: nothing. */
  isValid?: (text: string) => boolean
}

/** Every text in a tree that comes from a tenant or a database row. */
export const stringFields: StringField[] = [
  { name: 'load balancer name', harmless: () => 'x', treeWith: name => someTree({ tree: { name } }) },
  { name: 'load balancer id', harmless: () => 'x', treeWith: id => someTree({ tree: { id } }) },
  { name: 'project_id', harmless: () => 'x', treeWith: projectId => someTree({ tree: { projectId } }) },
  { name: 'vip_address', harmless: () => '203.0.113.9', treeWith: vip => someTree({ vip }) },
  { name: 'listener id', harmless: () => 'x', treeWith: listenerId => someTree({ listenerId }) },
  { name: 'pool id', harmless: () => 'x', treeWith: poolId => someTree({ poolId }) },
  { name: 'member id', harmless: () => 'x', treeWith: id => someTree({ member: { id } }) },
  { name: 'member address', harmless: () => '192.0.2.9', treeWith: text => someTree({ member: { address: text } }) },
  { name: 'monitor_address', harmless: () => '192.0.2.9', treeWith: text => someTree({ member: { monitorAddress: text } }) },
  { name: 'http_method', harmless: () => 'GET', treeWith: httpMethod => someTree({ monitor: { httpMethod } }) },
  { name: 'url_path', harmless: () => '/', treeWith: urlPath => someTree({ monitor: { urlPath } }) },
  { name: 'expected_codes', harmless: () => '200', treeWith: expectedCodes => someTree({ monitor: { expectedCodes } }) },
  { name: 'domain_name', harmless: () => 'x', treeWith: domainName => someTree({ monitor: { domainName } }) },
  { name: 'name of an inserted header', harmless: () => 'x', treeWith: text => someTree({ headers: { [text]: 'true' } }) },
  { name: 'allowed_cidrs', harmless: () => '192.0.2.0/24', treeWith: text => someTree({ listener: { allowedCidrs: [text] } }) },
  { name: 'additional VIP', harmless: () => '203.0.113.11', treeWith: text => someTree({ additionalVip: text }) },
  { name: 'cookie_name of a cookie of ours', harmless: () => 'x', treeWith: cookieName => persistent({ type: 'HTTP_COOKIE', cookieName }) },
  { name: "cookie_name of the application's", harmless: () => 'x', treeWith: cookieName => persistent({ type: 'APP_COOKIE', cookieName }) },
  { name: 'domain_name, by TLS', harmless: () => 'x', treeWith: domainName => someTree({ monitor: { type: 'HTTPS', domainName } }) },
  { name: 'address that is pinged', harmless: () => '192.0.2.9', treeWith: text => pinged({ monitorAddress: text }) },
  { name: 'id of a member that is pinged', harmless: () => 'x', treeWith: id => pinged({ id }) },
  ...l7Fields(),
  ...tlsFields(),
  { name: 'value of an inserted header', harmless: () => 'x', treeWith: text => someTree({ headers: { 'X-Forwarded-For': text } }) },
]

const REFERENCE = `https://keys.example/v1/secrets/${uuid(8, 1)}`
const HTTPS = { protocol: 'TERMINATED_HTTPS', defaultTlsContainerRef: REFERENCE } as const

/** A cipher string with the same lists: one for TLS 1.3 and one for the versions before. */
function ciphersLike(text: string): string {
  const names = text.split(':').filter(name => name !== '')
  const isSuite = (name: string) => name.startsWith('TLS_')
  return [...(names.some(isSuite) ? ['TLS_X'] : []), ...(names.every(isSuite) ? [] : ['X'])].join(':')
}

function tlsFields(): StringField[] {
  const listenerWith = (listener: Partial<ListenerNode>) => someTree({ listener: { ...HTTPS, ...listener } })
  const poolWith = (pool: Partial<PoolNode>) => someTree({ pool: { tlsEnabled: true, ...pool } })
  const hostName = (text: string) => (isHostName(text) ? 'x.example' : 'x')
  const ciphers = { harmless: ciphersLike, isValid: selectsCiphers }
  return [
    { name: 'tls_ciphers of a listener', ...ciphers, treeWith: tlsCiphers => listenerWith({ tlsCiphers }) },
    { name: 'tls_ciphers of a pool', ...ciphers, treeWith: tlsCiphers => poolWith({ tlsCiphers }) },
    { name: 'certificate of a listener', harmless: () => 'x', treeWith: text => listenerWith({ defaultTlsContainerRef: text }) },
    { name: 'certificate for a name', harmless: () => REFERENCE, treeWith: text => listenerWith({ sniContainerRefs: [text] }) },
    { name: 'certificate of a pool', harmless: () => 'x', treeWith: text => poolWith({ tlsContainerRef: text }) },
    {
      name: 'member name towards TLS',
      harmless: hostName,
      treeWith: name => someTree({ pool: { tlsEnabled: true, members: [aMember(1, { name }), aMember(2)] } }),
    },
  ]
}

/** Every text of a policy and of a rule, with the value once for each way in which it is written. */
function l7Fields(): StringField[] {
  const rules: [name: string, field: 'id' | 'key' | 'value', rule: Partial<L7RuleNode>][] = [
    ['l7 rule id', 'id', {}],
    ['name of a header', 'key', { type: 'HEADER' }],
    ['name of a cookie', 'key', { type: 'COOKIE' }],
    ['regular expression', 'value', { compareType: 'REGEX' }],
    ['host name', 'value', { type: 'HOST_NAME', compareType: 'EQUAL_TO' }],
    ['path', 'value', { compareType: 'CONTAINS' }],
    ['file type', 'value', { type: 'FILE_TYPE', compareType: 'EQUAL_TO' }],
    ['header', 'value', { type: 'HEADER', compareType: 'ENDS_WITH', key: 'x' }],
    ['cookie', 'value', { type: 'COOKIE', key: 'x' }],
    ['name of a certificate field', 'key', { type: 'SSL_DN_FIELD' }],
    ['certificate field', 'value', { type: 'SSL_DN_FIELD', key: 'CN', compareType: 'EQUAL_TO' }],
    ['result of a verification', 'value', { type: 'SSL_VERIFY_RESULT' }],
  ]
  const url = 'https://example.org/'
  const redirects: [name: string, redirect: (text: string) => Partial<L7PolicyNode>][] = [
    ['redirect_url', redirectUrl => ({ action: 'REDIRECT_TO_URL', redirectUrl })],
    ['redirect_url, path', path => ({ action: 'REDIRECT_TO_URL', redirectUrl: url + path })],
    ['redirect_prefix', redirectPrefix => ({ action: 'REDIRECT_PREFIX', redirectPrefix })],
    ['redirect_prefix, path', path => ({ action: 'REDIRECT_PREFIX', redirectPrefix: url + path })],
  ]
  return [
    ...rules.map(([name, field, rule]) => ({
      name: field === 'value' ? `value of an l7 rule, ${name}` : name,
      // an expression that may be too laborious has a second ACL
      harmless: (text: string) =>
        rule.type === 'SSL_VERIFY_RESULT' ? '1' : rule.compareType === 'REGEX' && mayExceedMatchLimit(text) ? 'x.*.*.*' : 'x',
      treeWith: (text: string) => someTree({ policy: { rules: [aRule(1, { ...rule, [field]: text }), aRule(2)] } }),
    })),
    ...redirects.map(([name, redirect]) => ({
      name,
      harmless: () => url,
      treeWith: (text: string) => someTree({ policy: { ...redirect(text), rules: [aRule(1)] } }),
    })),
  ]
}

const persistent = (persistence: Pick<SessionPersistence, 'type' | 'cookieName'>) =>
  someTree({
    pool: { sessionPersistence: { ...persistence, persistenceTimeout: null, persistenceGranularity: null } },
  })

const pinged = (member: Partial<MemberNode>) => someTree({ monitor: { type: 'PING' }, member })

function someTree(change: {
  tree?: Partial<LoadBalancerTree>
  vip?: string
  listenerId?: string
  poolId?: string
  member?: Partial<MemberNode>
  monitor?: Partial<HealthMonitorNode>
  headers?: Record<string, string>
  listener?: Partial<ListenerNode>
  pool?: Partial<PoolNode>
  additionalVip?: string
  policy?: Partial<L7PolicyNode>
}): LoadBalancerTree {
  const poolId = change.poolId ?? uuid(3, 1)
  const tree = aTree({
    listeners: [
      aListener(1, {
        id: change.listenerId ?? uuid(2, 1),
        defaultPoolId: poolId,
        insertHeaders: change.headers ?? {},
        ...change.listener,
        // the policy with the pool comes first, so that its choice guards the one with the text
        l7Policies: [
          aPolicy(1, { action: 'REDIRECT_TO_POOL', redirectPoolId: poolId, rules: [aRule(9, { type: 'HOST_NAME' })] }),
          ...(change.policy ? [aPolicy(2, change.policy)] : []),
        ],
      }),
    ],
    pools: [
      aPool(1, {
        id: poolId,
        healthMonitor: aMonitor(1, { httpVersion: 1.1, ...change.monitor }),
        members: [aMember(1, { monitorAddress: '192.0.2.200', ...change.member }), aMember(2)],
        ...change.pool,
      }),
    ],
    ...(change.additionalVip === undefined
      ? {}
      : { additionalVips: [{ address: change.additionalVip, subnetId: uuid(7, 1) }] }),
    ...change.tree,
  })
  return { ...tree, vip: { ...tree.vip, address: change.vip ?? tree.vip.address } }
}

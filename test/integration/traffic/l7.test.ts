import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import t from 'tap'
import { NO_DATAGRAMS } from '../../../amphora-agent/datagrams/states.js'
import { parseServersState } from '../../../amphora-agent/haproxy/runtime/servers-state.js'
import { parseStat, SHOW_PROXIES } from '../../../amphora-agent/haproxy/runtime/stat.js'
import { takeSnapshot } from '../../../amphora-agent/statistics/snapshot.js'
import { regularExpressionProblem } from '../../../controller/load-balancer/objects/l7-rules/regular-expression.js'
import type { L7PolicyNode, L7RuleNode } from '../../../controller/load-balancer/tree/tree.js'
import { renderDesired } from '../../../controller/provider/amphora/rendering/desired.js'
import { aPolicy, aRule } from '../../golden/l7-models.js'
import { aListener, aTree, someFacts, uuid } from '../../golden/models.js'
import { type L7Request, POOLS, serveL7 } from '../../support/clients/l7-traffic.js'
import { expectedOutcome, someListeners, someRequests } from '../../support/inputs/l7-model.js'
import { header, host, path, ruleCases, withHeaders, withHost, withPath } from '../../support/inputs/l7-rule-cases.js'
import { checkWithHaproxy } from '../../support/services/haproxy.js'

const toPool = (name: keyof typeof POOLS): Partial<L7PolicyNode> => ({
  action: 'REDIRECT_TO_POOL',
  redirectPoolId: uuid(3, POOLS[name]),
})
const toUrl = (redirectUrl: string, redirectHttpCode: number | null = null): Partial<L7PolicyNode> => ({
  action: 'REDIRECT_TO_URL',
  redirectUrl,
  redirectHttpCode,
})
const toPrefix = (redirectPrefix: string, redirectHttpCode: number | null = null): Partial<L7PolicyNode> => ({
  action: 'REDIRECT_PREFIX',
  redirectPrefix,
  redirectHttpCode,
})
/** A rule that every request matches. */
const always = (number: number) => aRule(number, { value: '/' })

t.test('every rule type matches with every compare type, also inverted', async t => {
  const listeners = ruleCases.flatMap(({ rule }, index) =>
    [false, true].map((invert, twin) => {
      const number = 2 * index + twin + 1
      const rules = [aRule(number, { ...rule, invert })]
      return aListener(number, { defaultPoolId: uuid(3, POOLS.default), l7Policies: [aPolicy(number, { rules })] })
    }),
  )
  const { ask } = await serveL7(t, listeners)
  for (const [index, { rule, matches, misses }] of ruleCases.entries()) {
    const name = `${rule.type} ${rule.key ?? ''} ${rule.compareType} ${escape(rule.value ?? '')}`
    for (const [requests, outcomes] of [
      [matches, ['reject', 'pool 1']],
      [misses, ['pool 1', 'reject']],
    ] as const) {
      for (const sent of requests) {
        const got = [await ask(2 * index + 1, sent), await ask(2 * index + 2, sent)].map(({ outcome }) => outcome)
        t.same(got, outcomes, `${name}: ${escape(JSON.stringify(sent))}`)
      }
    }
  }
})

t.test('each action', async t => {
  const url = `https://example.org:8443/%41%[src]?it's="#{}%{+Q}r&a=b\\;$HOME`
  const codes = [301, 302, 303, 307, 308]
  const on = (number: number, ...policies: Partial<L7PolicyNode>[]) =>
    aListener(number, {
      defaultPoolId: uuid(3, POOLS.default),
      insertHeaders: { 'X-Forwarded-Port': 'true' },
      l7Policies: policies.map((policy, index) => {
        const id = number * 10 + index
        return aPolicy(id, { position: index + 1, rules: [aRule(id)], ...policy })
      }),
    })
  const { ask, desired, command } = await serveL7(t, [
    on(1, {}),
    on(2, toPool('other')),
    ...codes.flatMap((code, index) => [
      on(10 + index, toUrl(url, code)),
      on(20 + index, toPrefix('http://e.org/p%q', code)),
    ]),
    on(30, toUrl(url)),
    on(31, toPrefix('http://e.org')),
    on(40, toPool('disabled')),
    on(41, toPool('deleted')),
    on(42, { adminStateUp: false }),
    on(43, { change: 'delete' }),
    on(44, { rules: [] }),
    on(45, { rules: [aRule(451, { adminStateUp: false }), aRule(452, { change: 'delete' })] }),
    on(46, { rules: [aRule(461), aRule(462, { value: '/nowhere', adminStateUp: false })] }),
    on(47, { rules: [aRule(471), aRule(472, { compareType: 'ENDS_WITH', value: 'x' })] }),
    on(48, toPool('disabled'), toPool('other')),
    { ...on(50, toPool('other')), defaultPoolId: null },
    on(51, { ...toPool('default'), rules: [aRule(5110, { value: '/api/1' })] }, toPool('other'), {
      ...toPool('other'),
      rules: [always(513)],
    }),
  ])
  const outcome = async (listener: number, target: string) => (await ask(listener, { path: target })).outcome

  t.equal(await outcome(1, '/api'), 'reject')
  t.equal(await outcome(1, '/'), 'pool 1', 'a request without a match goes to the default pool')
  t.equal(await outcome(2, '/api'), 'pool 2')
  t.equal(await outcome(2, '/'), 'pool 1')
  for (const [index, code] of codes.entries()) {
    t.equal(await outcome(10 + index, '/api?x=1'), `${code} ${url}`, 'the redirect URL is sent unchanged')
    t.equal(await outcome(20 + index, '/api/y%20?x=%[src]'), `${code} http://e.org/p%q/api/y%20?x=%[src]`)
  }
  t.equal(await outcome(30, '/api'), `302 ${url}`)
  t.equal(await outcome(31, '/api/?q'), '302 http://e.org/api/?q')
  for (const listener of [40, 41, 42, 43, 44, 45]) t.equal(await outcome(listener, '/api'), 'pool 1', String(listener))
  t.equal(await outcome(46, '/api'), 'reject', 'a disabled rule is ignored')
  t.equal(await outcome(47, '/api'), 'pool 1', 'all rules must match')
  t.equal(await outcome(47, '/api/x'), 'reject')
  t.equal(await outcome(48, '/api'), 'pool 2', 'when an action cannot run, the next policy decides')
  t.equal(await outcome(50, '/api'), 'pool 2')
  t.equal(await outcome(50, '/'), '503', 'there is no default pool')
  t.equal(await outcome(51, '/api/1'), 'pool 1')
  t.equal(await outcome(51, '/api/2'), 'pool 2')
  t.equal(await outcome(51, '/'), 'pool 2')
  t.match((await ask(2, { path: '/api' })).seen, { 'x-forwarded-port': /^\d+$/ }, 'headers are inserted for every pool')

  const ofListener = (number: number) =>
    desired.objects.pools.filter(({ listenerId }) => listenerId === uuid(2, number))
  t.same(
    ofListener(51).map(({ poolId }) => poolId),
    [uuid(3, POOLS.default), uuid(3, POOLS.other)],
    'a pool appears once, however many policies use it',
  )
  t.same(
    desired.haproxy?.backends.map(({ name }) => name),
    desired.objects.pools.map(({ poolId, listenerId }) => `${poolId}:${listenerId}`),
  )
  const rows = parseStat(await command(SHOW_PROXIES))
  const servers = parseServersState(await command('show servers state'))
  const counters = new Map(rows.map(row => [row.name, row.counters]))
  const none = { bytesIn: 0, bytesOut: 0, activeConnections: 0, totalConnections: 0, requestErrors: 0 }
  const snapshot = takeSnapshot(
    desired,
    { proxies: rows, servers, failedChecks: new Map(), datagrams: NO_DATAGRAMS },
    name => counters.get(name) ?? none,
  )
  const reported = desired.objects.pools.flatMap(({ listenerId }, index) =>
    listenerId === uuid(2, 51) ? [snapshot.pools[index]] : [],
  )
  t.match(reported, [
    { state: 'UP', members: ['NO_CHECK'], counters: { totalConnections: 1 } },
    { state: 'UP', members: ['NO_CHECK'], counters: { totalConnections: 2 } },
  ])
})

t.test('the first matching policy by position decides, whatever its action', async t => {
  const actions = [
    [{}, 'reject'],
    [toPool('other'), 'pool 2'],
    [toUrl('http://u/'), '302 http://u/'],
    [toPrefix('http://p'), '302 http://p/'],
  ] as const
  const orders = permutations(actions)
  const listeners = orders.map((order, index) =>
    aListener(index + 1, {
      defaultPoolId: uuid(3, POOLS.default),
      l7Policies: order.map(([policy], at) => {
        const id = (index + 1) * 10 + at
        // all match "/"; the first matches only this host
        const rules = at === 0 ? [always(id), aRule(id + 5, host('EQUAL_TO', 'first'))] : [always(id)]
        return aPolicy(id, { ...policy, position: at + 1, rules })
      }),
    }),
  )
  const { ask } = await serveL7(t, listeners)
  t.equal(orders.length, 24)
  for (const [index, order] of orders.entries()) {
    const expected = order.map(([, outcome]) => outcome)
    t.equal((await ask(index + 1, withHost('first'))).outcome, expected[0], expected.join(', '))
    t.equal((await ask(index + 1, withHost('other'))).outcome, expected[1], `the second of ${expected.join(', ')}`)
  }
})

t.test('a request too costly for a regular expression is rejected, whatever the policy’s action', async t => {
  const laborious = `/${'a'.repeat(40)}!`
  const long = `/${'ab'.repeat(4_000)}c`
  const nested = path('REGEX', '^/(a+)+$')
  const quotes = header('REGEX', `^('|"|\\(|\\)|,| )*it's$`)
  const on = (number: number, policy: Partial<L7PolicyNode>, ...rules: Partial<L7RuleNode>[]) =>
    aListener(number, {
      defaultPoolId: uuid(3, POOLS.default),
      l7Policies: [aPolicy(number, { ...policy, rules: rules.map((rule, at) => aRule(number * 10 + at, rule)) })],
    })
  const { ask, desired } = await serveL7(t, [
    on(1, {}, nested),
    on(2, toPool('other'), { ...nested, invert: true }),
    on(3, {}, path('REGEX', '^/(?:a|b)*d')),
    on(4, {}, nested, host('EQUAL_TO', 'x')),
    on(5, {}, host('REGEX', '^(A+)+$')),
    on(6, {}, quotes),
    on(7, {}, path('REGEX', '\\.(jpe?g|png)$')),
  ])
  const outcome = async (listener: number, sent: L7Request) => (await ask(listener, sent)).outcome
  t.equal(await outcome(1, withPath('/aa')), 'reject')
  t.equal(await outcome(1, withPath('/ab')), 'pool 1')
  t.equal(await outcome(1, withPath(laborious)), 'reject')
  t.equal(await outcome(2, withPath('/ab')), 'pool 2')
  t.equal(await outcome(2, withPath(laborious)), 'reject')
  t.equal(await outcome(3, withPath(long)), 'reject', 'a request that needs too much stack is rejected too')
  t.equal(await outcome(4, withPath(laborious)), 'reject')
  t.equal(
    await outcome(4, { path: laborious, headers: [['Host', 'y']] }),
    'pool 1',
    'the other rule of the policy does not match',
  )
  t.equal(await outcome(5, withHost(`${'a'.repeat(40)}!`)), 'reject')
  t.equal(await outcome(6, withHeaders(['X-Kind', `', "(it's`])), 'reject')
  t.equal(await outcome(6, withHeaders(['X-Kind', `', "(its`])), 'pool 1')
  t.equal(await outcome(6, withHeaders(['X-Kind', `x, ${`',"`.repeat(3_000)}`])), 'pool 1')
  t.notMatch(desired.haproxy?.text, `${uuid(0, 70)}.given-up`, 'a cheap expression costs nothing extra')
})

t.test('property: any policies treat any request as the model does', async t => {
  const seed = Number(process.env.TEST_SEED ?? Date.now() % 1_000_000)
  t.comment(`TEST_SEED=${seed}`)
  const { listeners, requests } = variedSample(seed)
  const { ask } = await serveL7(t, listeners)
  for (const [index, listener] of listeners.entries()) {
    const outcomes = await Promise.all(requests.map(sent => ask(index + 1, sent)))
    for (const [at, sent] of requests.entries()) {
      const [outcome, expected] = [outcomes[at]?.outcome, expectedOutcome(listener, sent)]
      if (outcome !== expected) t.equal(outcome, expected, escape(JSON.stringify({ listener, sent })))
    }
  }
  t.pass(`${listeners.length * requests.length} requests`)
})

t.test('haproxy accepts every regular expression that the API does not refuse', async t => {
  const parts = [
    ...[
      'a',
      'é',
      ' ',
      '-',
      ',',
      '.',
      '^',
      '$',
      '|',
      '||',
      '(',
      ')',
      '(?:',
      '(?=',
      '(?!',
      '(?>',
      '(?i)',
      '(?i:',
      '(?<n>',
      '(?P<m>',
      '(?',
    ],
    ...[
      '[',
      ']',
      '[^',
      '[a-z]',
      '[]a]',
      '[[:alpha:]]',
      '[[:^digit:]-]',
      '[:',
      '[.',
      '-]',
      '[\\d-',
      '[\\x41-\\]]',
      'z-a',
    ],
    ...['*', '+', '?', '{', '}', '{2}', '{2,}', '{2,3}', '{,3}', '{ 1}', '{3,2}', '{65535}', '{65536}', '*?', '++'],
    ...[
      '\\',
      '\\d',
      '\\W',
      '\\b',
      '\\A',
      '\\z',
      '\\1',
      '\\n',
      '\\x4',
      '\\x41',
      '\\.',
      '\\{',
      '\\-',
      '\\Q',
      '\\K',
      '\\C',
      '\\u',
      '\\R',
    ],
    ...[`'`, '"', '#', '%', '%[src]', '-i', '--', '}', '/', '<', '>', '=', '!', ':', '&', '(*', '(?#'],
  ]
  const someExpressions = fc.array(
    fc.array(fc.constantFrom(...parts), { minLength: 1, maxLength: 7 }).map(chosen => chosen.join('')),
    { minLength: 6_000, maxLength: 6_000 },
  )
  const [candidates = []] = fc.sample(someExpressions, { numRuns: 1, seed: 6 })
  const largest = [
    '(?:[ab]{99}){99}',
    '((((a{9}){9}){9}){2})',
    `(${'.*x|'.repeat(60)})`,
    '('.repeat(30) + ')'.repeat(30),
  ]
  const expressions = [...candidates, ...largest].filter(text => regularExpressionProblem(text) === null)
  t.ok(expressions.length > 1_000, `${expressions.length} expressions are not refused`)
  for (const text of largest) t.ok(expressions.includes(text), text.slice(0, 20))
  const policies = expressions.map((value, index) =>
    aPolicy(index + 1, { rules: [aRule(index + 1, { compareType: 'REGEX', value })] }),
  )
  const directory = mkdtempSync(join(tmpdir(), 'krater-l7-'))
  t.teardown(() => rmSync(directory, { recursive: true }))
  const { haproxy } = renderDesired(aTree({ listeners: [aListener(1, { l7Policies: policies })] }), someFacts())
  t.same(await checkWithHaproxy(directory, haproxy?.text ?? ''), { code: 0, complaints: [] })
})

/**
 * The first sample at or after a seed in which every kind of outcome is frequent; a single seed leaves that to
 * chance.
 */
function variedSample(first: number) {
  for (let seed = first; ; seed += 1) {
    const [listeners = []] = fc.sample(someListeners(60), { numRuns: 1, seed })
    const [requests = []] = fc.sample(someRequests(25), { numRuns: 1, seed: seed + 1 })
    const outcomes = listeners.flatMap(listener => requests.map(sent => expectedOutcome(listener, sent)))
    const often = (kind: string) => outcomes.filter(outcome => outcome.startsWith(kind)).length > 20
    if (['reject', 'pool 1', 'pool 2', '301', '302', '503'].every(often)) return { listeners, requests }
  }
}

function permutations<T>(items: readonly T[]): T[][] {
  if (items.length === 0) return [[]]
  return items.flatMap((item, index) => permutations(items.toSpliced(index, 1)).map(rest => [item, ...rest]))
}

import fc from 'fast-check'
import t from 'tap'
import { ApiError } from '../../../controller/http/errors.js'
import { orderPolicies } from '../../../controller/load-balancer/objects/l7-policies/positions.js'
import {
  completePolicy,
  completePolicyUpdate,
  type Redirection,
} from '../../../controller/load-balancer/objects/l7-policies/rules.js'
import {
  type Comparison,
  checkRuleCount,
  completeRule,
} from '../../../controller/load-balancer/objects/l7-rules/rules.js'

/** The status and message of the API error that `body` throws, or none. */
function refusal(body: () => unknown): { status: number; message: string } | null {
  try {
    body()
    return null
  } catch (error) {
    if (error instanceof ApiError) return { status: error.status, message: error.message }
    throw error
  }
}

t.test('rules', async t => {
  const types: readonly Comparison['type'][] = [
    'HOST_NAME',
    'PATH',
    'FILE_TYPE',
    'HEADER',
    'COOKIE',
    'SSL_CONN_HAS_CERT',
    'SSL_VERIFY_RESULT',
    'SSL_DN_FIELD',
  ]
  const compareTypes: readonly Comparison['compare_type'][] = [
    'REGEX',
    'STARTS_WITH',
    'ENDS_WITH',
    'CONTAINS',
    'EQUAL_TO',
  ]
  await t.test('each rule type allows its own compare types', async t => {
    const good: Partial<Record<Comparison['type'], [key: string | null, value: string]>> = {
      HEADER: ['X-A', 'a'],
      COOKIE: ['c', 'a'],
      SSL_CONN_HAS_CERT: [null, 'TRUE'],
      SSL_VERIFY_RESULT: [null, '0'],
      SSL_DN_FIELD: ['CN', 'a b'],
    }
    const allowed = Object.fromEntries(
      types.map(type => {
        const [key, value] = good[type] ?? [null, 'a']
        return [
          type,
          compareTypes
            .filter(compare_type => refusal(() => completeRule({ type, compare_type, key, value })) === null)
            .join(' '),
        ]
      }),
    )
    const all = compareTypes.join(' ')
    t.strictSame(allowed, {
      HOST_NAME: all,
      PATH: all,
      FILE_TYPE: 'REGEX EQUAL_TO',
      HEADER: all,
      COOKIE: all,
      SSL_CONN_HAS_CERT: 'EQUAL_TO',
      SSL_VERIFY_RESULT: 'EQUAL_TO',
      SSL_DN_FIELD: all,
    })
  })
  await t.test('each rule type checks its key and value', async t => {
    const check = (type: Comparison['type'], key: string | null, value: string, compare_type = 'EQUAL_TO' as const) =>
      refusal(() => completeRule({ type, compare_type, key, value }))
    const cases: [Comparison['type'], string | null, string, boolean][] = [
      ['HOST_NAME', null, 'a.example', true],
      ['HOST_NAME', null, '', false],
      ['HOST_NAME', null, 'a b', false],
      ['HOST_NAME', null, 'ä', false],
      ['PATH', null, '"/a b"', true],
      ['PATH', null, '/a\tb', false],
      ['PATH', null, '/a;b\\"', true],
      ['HEADER', 'X-A', '"', true],
      ['HEADER', 'X-A', '" a\tb "', true],
      ['HEADER', 'X-A', 'a "b" c', false],
      ['HEADER', null, 'a', false],
      ['HEADER', '', 'a', false],
      ['HEADER', 'X A', 'a', false],
      ['HEADER', 'X:A', 'a', false],
      ['HEADER', 'X-A)', 'a', false],
      ['HEADER', "!#$%&'*+,.^_|~`-9z", 'a', true],
      ['COOKIE', 'c', 'a b', false],
      ['COOKIE', 'c', 'a;b', false],
      ['COOKIE', 'c', 'a"b', false],
      ['COOKIE', 'c', 'a\\b', false],
      ['COOKIE', 'c', 'a=b,c', true],
      ['COOKIE', null, 'a', false],
      ['SSL_CONN_HAS_CERT', null, 'true', true],
      ['SSL_CONN_HAS_CERT', null, 'false', false],
      ['SSL_CONN_HAS_CERT', 'k', 'true', false],
      ['SSL_VERIFY_RESULT', null, '10', true],
      ['SSL_VERIFY_RESULT', null, '-1', false],
      ['SSL_VERIFY_RESULT', null, '1.5', false],
      ['SSL_VERIFY_RESULT', 'k', '1', false],
      ['SSL_DN_FIELD', 'O-1', 'Ärger AG', true],
      ['SSL_DN_FIELD', '1O', 'a', false],
      ['SSL_DN_FIELD', 'O)', 'a', false],
      ['SSL_DN_FIELD', null, 'a', false],
      ['SSL_DN_FIELD', 'O', 'a\u0007', false],
    ]
    for (const [type, key, value, good] of cases) {
      const refused = check(type, key, value)
      t.equal(refused === null, good, `${type} ${key} ${JSON.stringify(value)}: ${refused?.message ?? 'accepted'}`)
      if (refused !== null) t.match(refused, { status: 400, message: /^Error parsing L7Rule: / })
    }
  })
  await t.test('an unused key is dropped', async t => {
    const rule = { compare_type: 'EQUAL_TO', key: 'k', value: 'a', invert: true } as const
    for (const type of ['HOST_NAME', 'PATH', 'FILE_TYPE'] as const) {
      t.strictSame(completeRule({ ...rule, type }), { ...rule, type, key: null })
    }
    t.strictSame(completeRule({ ...rule, type: 'HEADER' }), { ...rule, type: 'HEADER' })
  })
  await t.test('regular expressions must be valid for HAProxy', async t => {
    const check = (value: string) =>
      refusal(() => completeRule({ type: 'PATH', compare_type: 'REGEX', key: null, value }))
    for (const value of ['^/api/v[0-9]+/', '\\.(png|jpe?g)$', '^/a b$', '(?i)^/x']) t.equal(check(value), null, value)
    for (const value of ['(', '[z-a]', 'a**', '\\', 'a{2,1}', '(?<=a)b', '((a{999}){999}){999}', 'ä', 'a\nb', '']) {
      t.match(check(value), { status: 400, message: /^Error parsing L7Rule: the value / }, value)
    }
  })
  t.equal(
    refusal(() => checkRuleCount(50)),
    null,
  )
  t.match(
    refusal(() => checkRuleCount(51)),
    { status: 409 },
  )
})

const URLS = ['http://a.example', 'https://b.example/x'] as const
const optional = <T>(arbitrary: fc.Arbitrary<T>) => fc.option(arbitrary, { nil: null, freq: 1 })
const targets = {
  redirect_pool_id: optional(fc.constantFrom('pool-1', 'pool-2')),
  redirect_url: optional(fc.constantFrom(...URLS)),
  redirect_prefix: optional(fc.constantFrom(...URLS)),
  redirect_http_code: optional(fc.constantFrom(301, 302, 303)),
}
const action = fc.constantFrom<Redirection['action']>(
  'REJECT',
  'REDIRECT_TO_POOL',
  'REDIRECT_TO_URL',
  'REDIRECT_PREFIX',
)

/** Whether a policy has exactly the targets that its action needs. */
function isConsistent(policy: Redirection): boolean {
  const has = {
    pool: policy.redirect_pool_id !== null,
    url: policy.redirect_url !== null,
    prefix: policy.redirect_prefix !== null,
    code: policy.redirect_http_code !== null,
  }
  const desired = {
    REJECT: { pool: false, url: false, prefix: false, code: false },
    REDIRECT_TO_POOL: { pool: true, url: false, prefix: false, code: false },
    REDIRECT_TO_URL: { pool: false, url: true, prefix: false, code: true },
    REDIRECT_PREFIX: { pool: false, url: false, prefix: true, code: true },
  }[policy.action]
  return JSON.stringify(has) === JSON.stringify(desired)
}

t.test('a policy has exactly what its action needs, after any sequence of updates', async t => {
  const tally = { created: 0, updated: 0, refused: 0 }
  const create = fc.record({ action, ...targets })
  const update = fc.record({ action, ...targets }, { requiredKeys: [] })
  fc.assert(
    fc.property(create, fc.array(update, { maxLength: 6 }), (body, updates) => {
      let policy: Redirection
      try {
        policy = completePolicy(body)
      } catch (error) {
        tally.refused++
        return error instanceof ApiError && error.status === 400
      }
      tally.created++
      for (const given of updates) {
        try {
          const { action, redirect_pool_id, redirect_url, redirect_prefix, redirect_http_code } = completePolicyUpdate(
            policy,
            given,
          )
          policy = { action, redirect_pool_id, redirect_url, redirect_prefix, redirect_http_code }
          tally.updated++
        } catch (error) {
          if (!(error instanceof ApiError && error.status === 400)) return false
        }
        if (!isConsistent(policy)) return false
      }
      return isConsistent(policy)
    }),
    { numRuns: 500 },
  )
  t.ok(Math.min(...Object.values(tally)) > 50, `every branch was reached: ${JSON.stringify(tally)}`)
})

t.test('the policies of a new listener get the requested positions', async t => {
  const order = (...positions: number[]) =>
    orderPolicies(positions.map((position, index) => ({ name: index, position })))
  const names = (...positions: number[]) => order(...positions).map(({ name }) => name)
  const last = 2147483647
  t.same(names(), [])
  t.same(names(last, last, last), [0, 1, 2])
  t.same(names(1, 1, 1), [2, 1, 0])
  t.same(names(3, 2, 1), [2, 0, 1], 'a position beyond the end means the end')
  t.same(names(last, 1, 2, 2), [1, 3, 2, 0])
  t.same(
    order(last, 7, 1).map(({ position }) => position),
    [1, 2, 3],
  )
})

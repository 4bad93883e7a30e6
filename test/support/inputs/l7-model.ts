import fc from 'fast-check'
import type { L7PolicyNode, L7RuleNode, ListenerNode } from '../../../controller/load-balancer/tree/tree.js'
import { aPolicy, aRule } from '../../golden/l7-models.js'
import { aListener, uuid } from '../../golden/models.js'
import { type L7Request, type Outcome, POOLS } from '../clients/l7-traffic.js'

/** A model of what a listener does with a request, independent of the renderer and HAProxy, which it judges. */
export function expectedOutcome(listener: ListenerNode, request: L7Request): Outcome {
  const usable = (poolId: string | null) => poolId === uuid(3, POOLS.default) || poolId === uuid(3, POOLS.other)
  const poolOutcome = (poolId: string | null) => (poolId === uuid(3, POOLS.default) ? 'pool 1' : 'pool 2')
  const policy = listener.l7Policies
    .toSorted((a, b) => a.position - b.position)
    .filter(({ adminStateUp, change }) => adminStateUp && change !== 'delete')
    .filter(({ action, redirectPoolId }) => action !== 'REDIRECT_TO_POOL' || usable(redirectPoolId))
    .find(({ rules }) => {
      const asked = rules.filter(({ adminStateUp, change }) => adminStateUp && change !== 'delete')
      return asked.length > 0 && asked.every(rule => matches(rule, request) !== rule.invert)
    })
  const code = policy?.redirectHttpCode ?? 302
  switch (policy?.action) {
    case 'REJECT':
      return 'reject'
    case 'REDIRECT_TO_POOL':
      return poolOutcome(policy.redirectPoolId)
    case 'REDIRECT_TO_URL':
      return `${code} ${policy.redirectUrl}`
    case 'REDIRECT_PREFIX':
      return `${code} ${policy.redirectPrefix}${request.path}`
    case undefined:
      return listener.defaultPoolId === null ? '503' : poolOutcome(listener.defaultPoolId)
  }
}

function matches({ type, compareType, key, value }: L7RuleNode, { path, headers }: L7Request): boolean {
  const [plainPath = ''] = path.split('?')
  const named = (name: string) =>
    headers.flatMap(([header, content]) => (header.toLowerCase() === name.toLowerCase() ? [content] : []))
  const compare = (subject: string, desired: string) => {
    switch (compareType) {
      case 'REGEX':
        return new RegExp(desired).test(subject)
      case 'STARTS_WITH':
        return subject.startsWith(desired)
      case 'ENDS_WITH':
        return subject.endsWith(desired)
      case 'CONTAINS':
        return subject.includes(desired)
      case 'EQUAL_TO':
        return subject === desired
    }
  }
  switch (type) {
    case 'HOST_NAME':
      return named('host').some(host => compare(host.replace(/:\d*$/, '').toLowerCase(), value.toLowerCase()))
    case 'PATH':
      return compare(plainPath, value)
    case 'FILE_TYPE':
      return compareType === 'REGEX'
        ? /\.[^./]+$/.test(plainPath) && compare(plainPath.replace(/^.*\./, ''), value)
        : plainPath.endsWith(`.${value}`)
    case 'HEADER':
      return named(key ?? '')
        .flatMap(line => line.split(','))
        .some(item => compare(item.trim(), value))
    case 'COOKIE':
      return named('cookie')
        .flatMap(line => line.split('; '))
        .map(pair => pair.split('='))
        .some(([name, content = '']) => name === key && compare(content, value))
    case 'SSL_CONN_HAS_CERT':
    case 'SSL_VERIFY_RESULT':
    case 'SSL_DN_FIELD':
      throw new Error(`no ${type} here`)
  }
}

const COMPARE_TYPES = ['REGEX', 'STARTS_WITH', 'ENDS_WITH', 'CONTAINS', 'EQUAL_TO'] as const

/** Few values, so that they often match. */
const VALUES = {
  HOST_NAME: ['a.x', 'B.x', 'x', 'a'],
  PATH: ['/', '/a', '/a/b', 'b.jpg', 'a'],
  FILE_TYPE: ['jpg', 'png'],
  HEADER: ['one', 'on', 'two', 'e'],
  COOKIE: ['one', 'on', 'two', 'e'],
} as const

const mostly = fc.integer({ min: 0, max: 9 }).map(n => n > 0)

function someRule(number: number): fc.Arbitrary<L7RuleNode> {
  return fc
    .record({
      type: fc.constantFrom('HOST_NAME', 'PATH', 'FILE_TYPE', 'HEADER', 'COOKIE'),
      compareType: fc.constantFrom(...COMPARE_TYPES),
      key: fc.constantFrom('k', 'l'),
      value: fc.nat(4),
      invert: fc.boolean(),
      adminStateUp: mostly,
      change: fc.constantFrom('create', 'update', 'update', 'delete'),
    })
    .map(({ type, compareType, key, value, ...rest }) => {
      const values = VALUES[type]
      const text = values[value % values.length] ?? ''
      return aRule(number, {
        ...rest,
        type,
        compareType: type === 'FILE_TYPE' && compareType !== 'REGEX' ? 'EQUAL_TO' : compareType,
        key: type === 'HEADER' || type === 'COOKIE' ? key : null,
        value: compareType === 'REGEX' ? `^(${text.toLowerCase()}|/a?)` : text,
      })
    })
}

function somePolicy(number: number): fc.Arbitrary<L7PolicyNode> {
  const url = `http://policy-${number}`
  return fc
    .record({
      action: fc.constantFrom('REJECT', 'REDIRECT_TO_POOL', 'REDIRECT_TO_POOL', 'REDIRECT_TO_URL', 'REDIRECT_PREFIX'),
      pool: fc.constantFrom(...Object.values(POOLS)),
      redirectHttpCode: fc.constantFrom(null, 301, 307),
      adminStateUp: mostly,
      change: fc.constantFrom('create', 'update', 'update', 'update', 'delete'),
      rules: fc.tuple(...[0, 1, 2].map(index => fc.option(someRule(number * 10 + index), { freq: 3 - index }))),
    })
    .map(({ action, pool, redirectHttpCode, rules, ...rest }) => {
      const isRedirect = action === 'REDIRECT_TO_URL' || action === 'REDIRECT_PREFIX'
      return aPolicy(number, {
        ...rest,
        action,
        redirectPoolId: action === 'REDIRECT_TO_POOL' ? uuid(3, pool) : null,
        redirectUrl: action === 'REDIRECT_TO_URL' ? url : null,
        redirectPrefix: action === 'REDIRECT_PREFIX' ? url : null,
        redirectHttpCode: isRedirect ? redirectHttpCode : null,
        rules: rules.filter(rule => rule !== null),
      })
    })
}

/** Listeners with up to seven policies each, whose rows come in any order. */
export function someListeners(count: number): fc.Arbitrary<ListenerNode[]> {
  const one = (number: number) => {
    const policies = fc.tuple(...[1, 2, 3, 4, 5, 6, 7].map(index => fc.option(somePolicy(number * 10 + index))))
    return fc
      .record({ policies, order: fc.shuffledSubarray([1, 2, 3, 4, 5, 6, 7], { minLength: 7 }), defaultPool: mostly })
      .map(({ policies, order, defaultPool }) =>
        aListener(number, {
          defaultPoolId: defaultPool ? uuid(3, POOLS.default) : null,
          l7Policies: policies.flatMap((policy, at) =>
            policy === null ? [] : [{ ...policy, position: order[at] ?? 0 }],
          ),
        }),
      )
  }
  return fc.tuple(...Array.from({ length: count }, (_, index) => one(index + 1)))
}

export function someRequests(count: number): fc.Arbitrary<L7Request[]> {
  const value = fc.constantFrom('one', 'two', 'on', 'gone', 'none')
  return fc.array(
    fc
      .record({
        path: fc.constantFrom('/', '/a', '/a/b', '/a/b.jpg', '/b.png', '/ab.jpg?x=/a', '/x?a'),
        host: fc.constantFrom('a.x', 'A.X:80', 'b.x', 'x', 'xa', 'y'),
        header: fc.array(fc.tuple(fc.constantFrom('k', 'L', 'm'), fc.array(value, { minLength: 1, maxLength: 2 })), {
          maxLength: 3,
        }),
        cookies: fc.array(fc.tuple(fc.constantFrom('k', 'l', 'K'), value), { maxLength: 3 }),
      })
      .map(({ path, host, header, cookies }) => ({
        path,
        headers: [
          ['Host', host] as const,
          ...header.map(([name, values]) => [name, values.join(', ')] as const),
          ...(cookies.length === 0 ? [] : [['Cookie', cookies.map(pair => pair.join('=')).join('; ')] as const]),
        ],
      })),
    { minLength: count, maxLength: count },
  )
}

import fc from 'fast-check'
import type { Test } from 'tap'
import * as z from 'zod'
import { tokenOf } from '../clients/callers.js'
import type { TestKeyManager } from '../clients/key-manager-api.js'
import { anyText } from './any-text.js'
import { attemptUntilDone, wellFormed } from './arbitrary-input.js'
import { keyManagerRoutes, type Route } from './key-manager-routes.js'

/** A caller who may do everything within OWN. */
export const everyRole = tokenOf('member,admin,creator,observer,audit,key-manager:service-admin,reader')

export const text = anyText({ maxLength: 40 }).map(wellFormed)

const longText = fc.constantFrom('', ' ', '\0', 'x'.repeat(256), 'x'.repeat(20_000), '%', '\\', "'; --", '\ud800', '😀')

/** Mostly the intended value, sometimes anything. */
export const mostly = (value: fc.Arbitrary<unknown>): fc.Arbitrary<unknown> =>
  fc.oneof(
    { weight: 30, arbitrary: value },
    { weight: 1, arbitrary: fc.jsonValue() },
    { weight: 1, arbitrary: longText },
    { weight: 1, arbitrary: fc.constant(null) },
  )

/** An object whose members mostly have the intended values. */
export const record = (fields: Record<string, fc.Arbitrary<unknown>>, requiredKeys: string[] = []) =>
  fc.record(Object.fromEntries(Object.entries(fields).map(([name, value]) => [name, mostly(value)])), { requiredKeys })

type Sent = { body?: unknown; raw?: string }

const sentAs = (good: fc.Arbitrary<unknown>): fc.Arbitrary<Sent> =>
  fc.oneof(
    { weight: 14, arbitrary: good.map(body => ({ body })) },
    { weight: 1, arbitrary: fc.jsonValue().map(body => ({ body })) },
    { weight: 1, arbitrary: anyText().map(raw => ({ raw: wellFormed(raw) })) },
    { weight: 1, arbitrary: fc.constantFrom('', '{', '"\\ud800"', `${'['.repeat(5000)}`).map(raw => ({ raw })) },
  )

const query = fc
  .array(
    fc.tuple(
      fc.constantFrom('name', 'type', 'meta', 'limit', 'offset', 'plugin_name', 'plugin_ca_id', 'x'),
      fc.oneof(
        text,
        fc.constantFrom(
          'x'.repeat(300),
          '\0',
          '\ud800',
          '%_%',
          '1',
          '-1',
          '99999999999999999999',
          '1e9',
          'generic',
          '\\',
        ),
      ),
    ),
    { maxLength: 3 },
  )
  .map(pairs => new URLSearchParams(pairs.map(([key, value]): [string, string] => [key, wellFormed(value)])).toString())

const headers = fc.record(
  {
    Accept: fc.constantFrom('*/*', 'application/json', 'text/html, */*;q=0.1', 'text/html', 'nonsense'),
    'Content-Type': fc.constantFrom(
      'application/json',
      'application/json; charset=utf-8',
      'text/plain',
      'nonsense',
      '',
    ),
    'OpenStack-API-Version': fc.constantFrom(
      'key-manager 1.1',
      'key-manager latest',
      'key-manager 9.9',
      'x',
      'key-manager y',
    ),
  },
  { requiredKeys: [] },
)

const fault = z.strictObject({ code: z.int(), title: z.string().min(1), description: z.string().min(1).nullable() })
const versionFault = z.strictObject({ code: z.string(), title: z.string(), message: z.string() })
const refusal = z.union([fault, versionFault])

export type Family = {
  api: TestKeyManager
  /** Matches the routes' paths. */
  pattern: RegExp
  /** Routes that run after all others, because they remove what those need. */
  last: readonly Route[]
  /** Bodies by pattern of the route; the first that matches counts. */
  bodies: readonly (readonly [RegExp, fc.Arbitrary<unknown>])[]
  /** Values of a path parameter, by its name or by the segment before it. */
  present: Readonly<Record<string, readonly string[]>>
  /** Requests that certainly succeed, for routes where chance rarely meets all conditions. */
  certain: Readonly<Partial<Record<Route, { path: string; sent: { body?: unknown } }>>>
}

/** Deletions come late, so that the others find something. */
const METHODS: readonly string[] = ['GET', 'PUT', 'PATCH', 'POST', 'DELETE']

/**
 * Calls every route of a family with any path, query, header and body: never an answer of 5xx, each refusal in
 * its format, and each route succeeds at least once.
 */
export function tryFamily(t: Test, { api, pattern, last, bodies, present, certain }: Family): void {
  const placeOf = (route: Route) => METHODS.indexOf(route.split(' ')[0] ?? '') + 10 * last.indexOf(route)
  const routes = [...keyManagerRoutes.keys()]
    .filter(route => pattern.test(route))
    .sort((a, b) => placeOf(a) - placeOf(b))
  const succeeded = new Set<Route>()
  const tally = new Map<number, number>()

  for (const route of routes) {
    t.test(route, async t => {
      const method = route.split(' ')[0] ?? ''
      const example = certain[route]
      const good = bodies.find(([looks]) => looks.test(route))?.[1] ?? fc.constant(undefined)
      const request = fc.record({
        path: pathOf(route, present),
        query: fc.oneof(
          { weight: method === 'GET' ? 1 : 6, arbitrary: fc.constant('') },
          { weight: 1, arbitrary: query },
        ),
        headers: fc.oneof({ weight: 4, arbitrary: fc.constant({}) }, { weight: 1, arbitrary: headers }),
        sent: method === 'GET' ? fc.constant({}) : sentAs(good),
        token: fc.constantFrom(
          everyRole,
          everyRole,
          everyRole,
          tokenOf('member'),
          tokenOf('nobody'),
          tokenOf('member', 'x'),
        ),
      })
      await attemptUntilDone(
        request,
        async ({ path, query, headers, sent, token }) => {
          const { body, raw }: Sent = sent
          const url = query === '' ? path : `${path}?${query}`
          const reply = await api.ask(method, url, body, { token, headers, ...(raw === undefined ? {} : { raw }) })
          tally.set(reply.status, (tally.get(reply.status) ?? 0) + 1)
          if (reply.status < 300) succeeded.add(route)
          else if (reply.status >= 500 || !refusal.safeParse(reply.body).success) {
            throw new Error(`${method} ${url}: ${reply.status} ${reply.text.slice(0, 500)}`)
          }
        },
        () => succeeded.has(route),
        {
          numRuns: method === 'GET' ? 20 : 35,
          examples: example === undefined ? [] : [[{ ...example, query: '', headers: {}, token: everyRole }]],
        },
      )
      t.pass(route)
    })
  }

  t.test('every route succeeds at least once', async t => {
    t.ok(routes.length > 0, `${routes.length} routes`)
    t.same(
      routes.filter(route => !succeeded.has(route)),
      [],
    )
    t.ok((tally.get(400) ?? 0) > 10, JSON.stringify([...tally]))
  })
}

function pathOf(route: Route, present: Family['present']): fc.Arbitrary<string> {
  const segments = (route.split(' ')[1] ?? '').split('/').map((segment, index, all) => {
    if (!segment.startsWith(':')) return fc.constant(segment)
    const known = present[segment] ?? present[all[index - 1] ?? ''] ?? []
    return fc.oneof(
      { weight: 12, arbitrary: fc.constantFrom(...known.map(encodeURIComponent)) },
      { weight: 1, arbitrary: fc.uuid({ version: 4 }) },
      { weight: 1, arbitrary: anyText({ minLength: 1 }).map(s => encodeURIComponent(wellFormed(s))) },
      { weight: 1, arbitrary: fc.constantFrom('%E0%A4%A', '%00', '..%2f..', '%2e%2e', 'x'.repeat(300)) },
    )
  })
  return fc.tuple(...segments).map(parts => parts.join('/'))
}

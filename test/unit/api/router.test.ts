import t from 'tap'
import { requestedMinor } from '../../../controller/api/microversion.js'
import { pageLinks, pageOf } from '../../../controller/api/paging.js'
import { createRouter } from '../../../controller/api/router.js'
import { ApiError } from '../../../controller/http/errors.js'

const routes = [
  { method: 'GET', path: '/' },
  { method: 'GET', path: '/v1/cas' },
  { method: 'GET', path: '/v1/cas/all' },
  { method: 'GET', path: '/v1/cas/:id' },
  { method: 'DELETE', path: '/v1/cas/:ca_id' },
  { method: 'PUT', path: '/v1/pools/:pool/members/:id' },
  { method: 'HEAD', path: '/v1/tokens' },
  { method: 'GET', path: '/v1/tokens' },
]
const lenient = createRouter(routes, { caseSensitive: false, headIsGet: true })
const strict = createRouter(routes, { caseSensitive: true, headIsGet: false })

t.test('a path leads to its route and parameters', async t => {
  t.match(lenient.find('GET', '/').match, { route: { path: '/' }, params: {} })
  t.match(lenient.find('GET', '/v1/cas/a%2Fb').match, { route: { path: '/v1/cas/:id' }, params: { id: 'a/b' } })
  t.match(lenient.find('PUT', '/v1/pools/p/members/m').match, { params: { pool: 'p', id: 'm' } })
  t.match(
    lenient.find('DELETE', '/v1/cas/x').match,
    { params: { ca_id: 'x' } },
    'each route has its own parameter names',
  )
})

t.test('a static segment wins over a parameter, unless it lacks the method', async t => {
  t.match(lenient.find('GET', '/v1/cas/all').match, { route: { path: '/v1/cas/all' } })
  t.match(lenient.find('DELETE', '/v1/cas/all').match, { route: { path: '/v1/cas/:ca_id' }, params: { ca_id: 'all' } })
})

t.test('a trailing slash is ignored; an empty segment matches nothing', async t => {
  t.match(lenient.find('GET', '/v1/cas/').match, { route: { path: '/v1/cas' } })
  for (const path of ['/v1/cas//', '/v1//cas', '//v1/cas', '/v1', '/v1/cas/a/b']) {
    t.strictSame(lenient.find('GET', path), { match: null, routes: [] }, path)
  }
})

t.test('a path without a route for the method lists the methods it has', async t => {
  const { match, routes } = lenient.find('PATCH', '/v1/cas/x')
  t.equal(match, null)
  t.same(
    routes.map(({ method }) => method),
    ['GET', 'DELETE'],
  )
})

t.test('case sensitivity and HEAD follow the API’s options', async t => {
  t.ok(lenient.find('GET', '/V1/CAS').match)
  t.notOk(strict.find('GET', '/V1/CAS').match)
  t.match(lenient.find('HEAD', '/v1/cas').match, { route: { method: 'GET' } })
  t.match(lenient.find('HEAD', '/v1/tokens').match, { route: { method: 'HEAD' } })
  t.notOk(strict.find('HEAD', '/v1/cas').match)
})

t.test('a page knows whether it has a next and a previous page', async t => {
  const rows = ['a', 'b', 'c']
  t.same(pageOf(rows, { limit: 2, marker: null, reverse: false }), {
    items: ['a', 'b'],
    hasNext: true,
    hasPrevious: false,
  })
  t.same(pageOf(rows, { limit: 2, marker: 'd', reverse: true }), {
    items: ['b', 'a'],
    hasNext: true,
    hasPrevious: true,
  })
  t.same(pageOf(rows, { limit: null, marker: '0', reverse: false }), { items: rows, hasNext: false, hasPrevious: true })
})

t.test('page links repeat the query in the API’s order', async t => {
  const page = { items: [{ id: 'a' }, { id: 'b' }], hasNext: true, hasPrevious: true }
  const query = new URLSearchParams('marker=0&limit=2&page_reverse=True')
  t.same(pageLinks(page, { url: 'http://x/y', query, order: ['previous', 'next'] }), [
    { rel: 'previous', href: 'http://x/y?marker=a&limit=2&page_reverse=True' },
    { rel: 'next', href: 'http://x/y?marker=b&limit=2' },
  ])
  t.same(
    pageLinks({ ...page, items: [] }, { url: 'http://x/y', query, order: ['next'] }),
    [],
    'an empty page has no links',
  )
})

t.test('a microversion must name the service and lie within its range', async t => {
  const versions = { service: 'key-manager', newest: 2 }
  t.equal(requestedMinor('', versions), 0)
  t.equal(requestedMinor('compute 2.90, Key-Manager 1.1', versions), 1)
  t.equal(requestedMinor('key-manager latest', versions), 2)
  t.equal(
    statusOf(() => requestedMinor('key-manager x', versions)),
    400,
  )
  t.equal(
    statusOf(() => requestedMinor('key-manager 1.3', versions)),
    406,
  )
})

/** The status of the ApiError that `body` throws; undefined if it throws none. */
function statusOf(body: () => unknown): number | undefined {
  try {
    body()
    return undefined
  } catch (error) {
    if (error instanceof ApiError) return error.status
    throw error
  }
}

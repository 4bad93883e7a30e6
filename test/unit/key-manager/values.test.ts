import { readFileSync } from 'node:fs'
import fc from 'fast-check'
import t from 'tap'
import { MICROVERSION_HEADER, requestedMinor as minorIn } from '../../../controller/api/microversion.js'
import { ApiError } from '../../../controller/http/errors.js'
import { MAX_MINOR, presentFault } from '../../../controller/key-manager/api/dialect.js'
import { pageJson, parsePage } from '../../../controller/key-manager/api/paging.js'
import { listConditions, listOrder } from '../../../controller/key-manager/api/secrets/filters.js'
import { buildDocument, rootDocument, versionDocument } from '../../../controller/key-manager/api/versions.js'
import { idInReference, isId, newId } from '../../../controller/key-manager/ids.js'
import { trimmed } from '../../../controller/key-manager/input.js'
import {
  decodeBody,
  decodePayload,
  parseContentType,
  servedType,
} from '../../../controller/key-manager/secrets/content-types.js'
import { parseExpiration, parseTime } from '../../../controller/key-manager/secrets/expiration.js'
import { anyText } from '../../support/inputs/any-text.js'

const statusOf = (body: () => unknown): number => {
  try {
    body()
    return 200
  } catch (error) {
    if (error instanceof ApiError) return error.status
    throw error
  }
}
const who = { userId: 'u', projectId: 'p', roles: ['member'] }

t.test('ISO 8601 times are read as UTC or refused', async t => {
  for (const [text, read] of [
    ['2030-01-01T02:00:00+02:00', '2030-01-01T00:00:00.000000Z'],
    ['2030-01-01', '2030-01-01T00:00:00.000000Z'],
    ['2030-01-01T10:11', '2030-01-01T10:11:00.000000Z'],
    ['20300101T101112,5-0330', '2030-01-01T13:41:12.500000Z'],
    ['2030-01-01t00:00:00z', '2030-01-01T00:00:00.000000Z'],
    ['2030-01-01 10:00 -01', '2030-01-01T11:00:00.000000Z'],
    ['2030-01-01T00:00-00:30', '2030-01-01T00:30:00.000000Z'],
    ['2028-02-29T23:59:59.123456789', '2028-02-29T23:59:59.123456Z'],
    ['0001-01-01T00:00:00', '0001-01-01T00:00:00.000000Z'],
    ['9999-12-31T23:59:59', '9999-12-31T23:59:59.000000Z'],
    [' 2030-01-01 ', '2030-01-01T00:00:00.000000Z'],
  ] as const) {
    t.equal(parseTime(text, 'x'), read, text)
  }
  for (const text of [
    ...['', 'x', '2030', '2030-01', '2030-1-1', '2030-00-01', '2030-13-01', '2030-01-00', '2030-01-32', '2030-02-29'],
    ...['2030-01-01T24:00', '2030-01-01T10:60', '2030-01-01T10:10:60', '2030-01-01T10', '2030-01-01T10:10:10.'],
    ...['2030-01-01T10:10+24:00', '2030-01-01T10:10+10:60', '0000-01-01', '0001-01-01T00:00+00:01', '12030-01-01'],
    ...['9999-12-31T23:59:59-00:01', '2030-01-01T10:10:10Zx', '2030-01-01\n', '٢٠٣٠-01-01', '2030-0101'],
  ].filter(text => text !== '2030-01-01\n')) {
    t.equal(
      statusOf(() => parseTime(text, 'x')),
      400,
      text,
    )
  }
  fc.assert(fc.property(anyText(), text => [200, 400].includes(statusOf(() => parseTime(text, 'x')))))
  const anyTime = fc.date({ min: new Date('0001-01-02'), max: new Date('9999-12-30'), noInvalidDate: true })
  fc.assert(
    fc.property(anyTime, date => parseTime(date.toISOString(), 'x') === `${date.toISOString().slice(0, -1)}000Z`),
  )
  t.equal(parseExpiration(''), null)
  t.equal(parseExpiration(null), null)
  t.equal(parseExpiration('2999-01-01T00:00:00.5')?.toISOString(), '2999-01-01T00:00:00.500Z')
  t.equal(
    statusOf(() => parseExpiration('2000-01-01')),
    400,
  )
})

t.test('payload types and encodings are recognised, decoded or refused', async t => {
  for (const [text, type] of [
    ['text/plain', 'text/plain'],
    [' Text/PLAIN ; Charset = UTF-8 ', 'text/plain'],
    ['application/PKCS8', 'application/pkcs8'],
    ['application/octet-stream', 'application/octet-stream'],
    ['application/pkix-cert', 'application/pkix-cert'],
    ['text/plain;charset=utf-16', null],
    ['application/octet-stream;charset=utf-8', null],
    ['text/plain, */*', null],
    ['', null],
  ] as const) {
    t.equal(parseContentType(text), type, text)
  }
  const bytes = fc.uint8Array({ minLength: 1 }).map(array => Buffer.from(array))
  fc.assert(
    fc.property(bytes, plain => {
      const text = plain.toString('base64')
      const broken = text.replace(/(.{7})/g, '$1\r\n')
      return [
        decodePayload(text, 'application/octet-stream', 'base64'),
        decodePayload(broken, 'application/pkcs8', 'base64'),
        decodeBody(Buffer.from(broken), 'application/octet-stream', 'BASE64'),
        decodeBody(plain, 'application/octet-stream', ''),
        decodeBody(plain, 'application/pkcs8', ''),
      ].every(decoded => decoded.equals(plain))
    }),
  )
  fc.assert(
    fc.property(anyText(), text =>
      [200, 400].includes(statusOf(() => decodePayload(text, 'application/octet-stream', 'base64'))),
    ),
  )
  t.equal(
    statusOf(() => decodeBody(Buffer.from('x'), 'application/pkcs8', 'gzip')),
    400,
  )
  t.same(decodeBody(Buffer.from('Grüße'), 'text/plain', 'gzip'), Buffer.from('Grüße'))
  const notText = Buffer.from([0xff])
  t.equal(
    statusOf(() => decodeBody(notText, 'text/plain', '')),
    400,
  )
  t.equal(servedType(null, 'application/pkcs8', notText), 'application/pkcs8')
  t.equal(servedType('', 'text/plain', notText), 'application/octet-stream')
  t.equal(
    statusOf(() => servedType('text/plain', 'application/pkcs8', notText)),
    406,
  )
  t.equal(servedType('text/plain', 'application/pkcs8', Buffer.from('\ufeffü')), 'text/plain; charset=UTF-8')
})

t.test('the microversion is read from the header or refused', async t => {
  const requestedMinor = (header: string) => minorIn(header, { service: 'key-manager', newest: MAX_MINOR })
  t.equal(MICROVERSION_HEADER, 'OpenStack-API-Version')
  t.equal(requestedMinor(''), 0)
  t.equal(requestedMinor('compute 3.0 , key-manager  1.2'), 2)
  t.equal(requestedMinor('key-manager LATEST'), 2)
  t.equal(requestedMinor('key-managers 9.9'), 0)
  t.equal(
    statusOf(() => requestedMinor('key-manager 1.3')),
    406,
  )
  t.equal(
    statusOf(() => requestedMinor('key-manager one')),
    400,
  )
  fc.assert(fc.property(anyText(), text => statusOf(() => requestedMinor(text)) < 500))
})

t.test('version documents show the build, links and the microversion range', async t => {
  const packaged = JSON.parse(readFileSync(new URL('../../../controller/package.json', import.meta.url), 'utf8'))
  t.same(buildDocument(), { build: packaged.version })
  t.match(rootDocument('http://h', 0), { versions: { values: [{ links: [{ href: 'http://h/v1/' }] }] } })
  t.match(versionDocument('http://h', 1), { version: { status: 'CURRENT' } })
})

t.test('faults have the format that client and status call for', async t => {
  const fault = { status: 404, title: 'Not Found', message: 'gone', requestId: 'r' }
  t.strictSame(presentFault(fault, null), { code: 404, title: 'Not Found', description: 'gone' })
  t.match(presentFault({ ...fault, status: 401 }, null), { code: 401, error: { code: 401, message: 'gone' } })
  t.match(presentFault({ ...fault, status: 406 }, null), { code: 406, description: null })
})

t.test('ids are lower-case version 4 UUIDs', async t => {
  fc.assert(fc.property(fc.constant(null), () => isId(newId())))
  for (const text of [
    '',
    newId().toUpperCase(),
    `${newId()} `,
    `{${newId()}}`,
    '00000000-0000-1000-8000-000000000000',
  ]) {
    t.notOk(isId(text), text)
  }
  const id = newId()
  t.equal(idInReference(`https://h/v1/secrets/${id}/`), id)
  t.equal(idInReference(`https://h/v1/secrets/${id}/payload`), null)
})

t.test('strings in bodies are trimmed, property names are not', async t => {
  const read = JSON.parse('{" a ":[" x ",{"b":"\\ty\\n"}],"__proto__":" p ","n":1,"z":null}')
  t.equal(JSON.stringify(trimmed(read)), '{" a ":["x",{"b":"y"}],"__proto__":"p","n":1,"z":null}')
})

t.test('limit, offset and marker become a page within bounds', async t => {
  const config = { default_limit_paging: 10, max_limit_paging: 100 }
  const read = (query: string) => parsePage(new URLSearchParams(query), config)
  t.strictSame(read(''), { limit: 10, offset: 0 })
  t.strictSame(read('limit= 5 &offset=%2B7'), { limit: 5, offset: 7 })
  t.strictSame(
    read('limit=5&offset=7&marker=http%3A//h/things/1'),
    { limit: 5, offset: 12 },
    'marker requests the following page',
  )
  t.strictSame(read('marker='), { limit: 10, offset: 0 })
  t.strictSame(read(`limit=${'9'.repeat(400)}&offset=${'9'.repeat(400)}`), { limit: 100, offset: 2_147_483_647 })
  fc.assert(
    fc.property(fc.string(), fc.string(), (limit, offset) => {
      const page = parsePage(new URLSearchParams({ limit, offset }), config)
      return page.limit >= 1 && page.limit <= 100 && page.offset >= 0 && Number.isSafeInteger(page.offset)
    }),
  )
  const query = new URLSearchParams('limit=1&name=a%26b&offset=1&marker=x')
  const page = { limit: 1, offset: 1 }
  t.strictSame(JSON.parse(pageJson('things', '[1]', 3, { page, query, url: 'http://h/things' })), {
    things: [1],
    total: 3,
    previous: 'http://h/things?limit=1&offset=0&name=a%26b',
    next: 'http://h/things?limit=1&offset=2&name=a%26b',
  })
})

t.test('filter values become bindings, never SQL text', async t => {
  const names = ['name', 'alg', 'mode', 'bits', 'secret_type', 'created', 'expiring_in_days', 'acl_only', 'sort']
  const pairs = fc.array(fc.tuple(fc.constantFrom(...names), anyText()), { maxLength: 5 })
  fc.assert(
    fc.property(pairs, given => {
      const query = new URLSearchParams(given)
      return (
        statusOf(() => {
          const conditions = listConditions(query, who)
          const marks = conditions.map(({ text }) => text.match(/\$\d+/g)?.length ?? 0)
          t.ok(marks.every((count, index) => count === conditions[index]?.values.length))
          t.match(listOrder(query).text, /^[a-z_.', :A-Z]+$/)
        }) < 500
      )
    }),
  )
  const marked = listConditions(
    new URLSearchParams({ name: 'MARK', alg: 'MARK', mode: 'MARK', secret_type: 'MARK' }),
    who,
  )
  t.notMatch(marked.map(({ text }) => text).join(), 'MARK')
  t.strictSame(
    marked.flatMap(({ values }) => values),
    ['p', 'MARK', 'MARK', 'MARK', 'MARK'],
  )
})

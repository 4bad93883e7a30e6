import fc from 'fast-check'
import t from 'tap'
import * as z from 'zod'
import { ApiError } from '../../../controller/http/errors.js'
import { canonicalPath } from '../../../controller/load-balancer/api/paths.js'
import { listOf, readBody, wrappedBodyWithLists } from '../../../controller/load-balancer/schema/input.js'
import {
  boolean,
  canonicalUuid,
  cidr,
  integer,
  ipAddress,
  mapOf,
  tags,
  text,
  uuid,
} from '../../../controller/load-balancer/schema/values.js'

const ID = '9691cd7d-d516-4a8e-902e-112909ae987d'

t.test('every spelling of a path leads to the same route', async t => {
  for (const path of [
    '/v2/lbaas/pools',
    '/v2.0/lbaas/pools',
    '/lbaas/pools',
    '/v2/pools',
    '/v2.0/pools/',
    '/lbaas/pools.json',
    '/v2/lbaas/pools.json/',
  ]) {
    t.equal(canonicalPath(path), '/lbaas/pools', path)
  }
  t.equal(canonicalPath('/v2.0/octavia/amphorae'), '/octavia/amphorae')
  t.equal(canonicalPath('//'), '/')
  for (const path of ['/v2', '/v2.0/', '/v2/lbaas', '/v2.0/octavia']) t.equal(canonicalPath(path), '/v2', path)
  t.equal(canonicalPath('/v3/lbaas/pools'), '/v3/lbaas/pools')
  const hostile = `${'/'.repeat(15_000)}x`
  const started = performance.now()
  for (let times = 0; times < 50; times++) canonicalPath(hostile)
  t.ok(performance.now() - started < 2000, 'a path of slashes is handled quickly')
})

t.test('values', async t => {
  const accepted = (type: { read: (value: unknown) => unknown }, value: unknown) =>
    t.match(type.read(value), { ok: true }, JSON.stringify(value))
  const refused = (type: { read: (value: unknown) => unknown }, value: unknown) =>
    t.match(type.read(value), { ok: false }, JSON.stringify(value))
  await t.test('integers are numbers or strings, and bounds apply after conversion', async t => {
    const port = integer(1, 65535)
    t.same(port.read('80'), { ok: true, value: 80 })
    t.same(port.read(0), { ok: false, reason: 'Value should be greater or equal to 1' })
    t.same(port.read('65536'), { ok: false, reason: 'Value should be lower or equal to 65535' })
    for (const value of [1.5, '1.5', '', 'x', true, [], {}, '0x50', '1e3']) refused(port, value)
  })
  await t.test('booleans have text forms', async t => {
    for (const value of [true, 1, 'True', 'yes', 'ON', 't']) t.same(boolean.read(value), { ok: true, value: true })
    for (const value of [false, 0, 'False', 'no', 'off', 'F']) t.same(boolean.read(value), { ok: true, value: false })
    for (const value of ['maybe', 2, '', [], {}]) refused(boolean, value)
  })
  await t.test('UUIDs are accepted in any form and become lower-case with dashes', async t => {
    for (const value of [ID, ID.toUpperCase(), ID.replaceAll('-', ''), `{${ID}}`, `urn:uuid:${ID}`])
      t.same(uuid.read(value), { ok: true, value: ID })
    for (const value of ['', 'web', `${ID}0`, 7, null]) refused(uuid, value)
  })
  await t.test('IP addresses exclude zones and inet_aton forms', async () => {
    for (const value of ['10.0.0.1', '2001:DB8::1', '::ffff:10.0.0.1']) accepted(ipAddress, value)
    for (const value of ['10.0.0', '0177.0.0.1', '1', 'fe80::1%eth0', '10.0.0.1/32', '']) refused(ipAddress, value)
  })
  await t.test('host bits of a CIDR are cleared', async t => {
    t.same(cidr.read('10.1.2.3/8'), { ok: true, value: '10.0.0.0/8' })
    t.same(cidr.read('2001:db8::1/32'), { ok: true, value: '2001:db8::/32' })
    for (const value of ['10.0.0.0/33', '10.0.0.0/-1', '10.0.0.0/8/8', 'x/8', 8, '/'.repeat(65)]) refused(cidr, value)
  })
  await t.test('text length counts characters, and NUL is refused', async t => {
    accepted(text(3), '🙂🙂🙂')
    refused(text(3), 'abcd')
    refused(text(3), 'a\0')
    t.same(tags.read(['a', 'b', 'a']), { ok: true, value: ['a', 'b'] })
    t.match(tags.read(['a', 5]), { ok: false, path: [1] })
    refused(tags, Array(257).fill('a'))
    refused(mapOf(text(5)), { a: 1 })
  })
  await t.test('no value makes a parser throw', async () => {
    for (const type of [integer(0), boolean, uuid, ipAddress, cidr, text(5), tags, mapOf(text(5))]) {
      fc.assert(
        fc.property(fc.anything(), value => typeof type.read(value).ok === 'boolean'),
        { numRuns: 200 },
      )
    }
    fc.assert(fc.property(fc.uuid(), value => canonicalUuid(value) === value))
  })
})

t.test('a list of invalid items stops after ten errors', async t => {
  let read = 0
  const item = z.strictObject({
    name: z.unknown().transform(name => {
      read += 1
      return name
    }),
  })
  const refusal = async (list: unknown): Promise<string> => {
    try {
      await readBody(wrappedBodyWithLists('list', listOf(item)), { list })
      return ''
    } catch (error) {
      return error instanceof ApiError ? error.message : ''
    }
  }
  t.equal(await refusal(Array(1000).fill({ name: 'a' })), '')
  t.equal(read, 1000)
  const all = await refusal(Array(30_000).fill({ name: 'a', wrong: 1 }))
  t.match(all, /^Unknown attribute for argument list\[0\]: wrong; .*list\[9\]: wrong; and more$/)
  t.ok(read < 1100, `${read} items were read`)
  t.match(
    await refusal([{ name: 'a' }, 5]),
    "Invalid input for field/attribute list[1]. Value: '5'. Value should be an object",
  )
  t.match(await refusal({}), "Invalid input for field/attribute list. Value: '{}'. Value should be a list")
  t.match(await refusal(undefined), "Invalid input for field/attribute list. Value: 'None'. Mandatory field missing.")
})

import fc from 'fast-check'
import t from 'tap'
import { parseConfiguration } from '../../../controller/config/load.js'
import { createHandler, type EraseProject } from '../../../controller/key-manager/keystone-listener/handle.js'
import { parseNotification } from '../../../controller/key-manager/keystone-listener/notification.js'
import { parseTransportUrl } from '../../../controller/key-manager/keystone-listener/transport-url.js'
import { anyText } from '../../support/inputs/any-text.js'
import { recordLog } from '../../support/recorded-log.js'
import { basicPayload, cadfPayload } from '../../support/services/keystone-notifier.js'

const DELETED = 'identity.project.deleted'
const PROJECT = '0123456789abcdef0123456789abcdef'

/** A notification as Keystone emits it, without the oslo.messaging envelope. */
const plain = (event_type: unknown, payload: unknown) => ({
  message_id: 'd4f2',
  publisher_id: 'identity.controller',
  event_type,
  priority: 'INFO',
  payload,
  timestamp: '2026-11-21 20:00:00.000000',
})

const enveloped = (message: unknown) => ({ 'oslo.version': '2.0', 'oslo.message': JSON.stringify(message) })

/** Every encoding in which a message may arrive. */
const FORMS = [(message: unknown) => message, enveloped].flatMap(wrap => [
  wrap,
  (message: unknown) => JSON.stringify(wrap(message)),
  (message: unknown) => Buffer.from(JSON.stringify(wrap(message))),
])
const formsOf = (message: unknown): unknown[] => FORMS.map(form => form(message))

t.test('a project deletion is recognised in each format and encoding', async t => {
  for (const payload of [basicPayload(PROJECT), cadfPayload(PROJECT), { target: { id: PROJECT } }]) {
    for (const eventType of [DELETED, 'IDENTITY.Project.Deleted', `cloud.${DELETED}`]) {
      for (const body of formsOf(plain(eventType, payload))) {
        t.same(parseNotification(body), { kind: 'project deleted', projectId: PROJECT })
      }
    }
  }
  t.match(parseNotification(plain(DELETED, { resource_info: 'default' })), { projectId: 'default' })
})

t.test('other events are ignored', async t => {
  for (const eventType of [
    'identity.project.updated',
    'identity.project.deleted.start',
    'identity.user.deleted',
    'identity.domain.deleted',
    'compute.project.deleted',
    'project.deleted',
    'identity-project-deleted',
    'deleted',
  ]) {
    for (const body of formsOf(plain(eventType, cadfPayload(PROJECT)))) {
      t.same(parseNotification(body), { kind: 'ignored', eventType })
    }
  }
  t.match(parseNotification(plain(DELETED, cadfPayload(PROJECT, 'failure'))), { kind: 'ignored' })
  t.match(parseNotification(plain(DELETED, cadfPayload(PROJECT, 'pending'))), { kind: 'ignored' })
})

t.test('an unreadable notification is malformed, with a reason', async t => {
  const cases: [body: unknown, reason: RegExp][] = [
    [undefined, /event_type/],
    [null, /event_type/],
    [[], /event_type/],
    ['', /JSON/],
    ['{"event_type": ', /JSON/],
    [Buffer.from([0xc3, 0x28]), /JSON/],
    ['"identity.project.deleted"', /event_type/],
    [{}, /event_type/],
    [plain('', {}), /event_type/],
    [plain(42, {}), /event_type/],
    [{ 'oslo.version': '2.0', 'oslo.message': 'x' }, /JSON/],
    [{ 'oslo.version': '2.0', 'oslo.message': { event_type: DELETED } }, /event_type/],
    [enveloped(enveloped(plain(DELETED, basicPayload(PROJECT)))), /event_type/],
    [{ event_type: DELETED }, /payload/],
    [plain(DELETED, PROJECT), /payload/],
    [plain(DELETED, {}), /no project/],
    [plain(DELETED, { resource_info: '' }), /no project/],
    [plain(DELETED, { resource_info: null }), /no project/],
    [plain(DELETED, { resource_info: { id: PROJECT } }), /no project/],
    [plain(DELETED, { resource_info: [PROJECT] }), /no project/],
    [plain(DELETED, { resource_info: 'a'.repeat(65) }), /no project/],
    [plain(DELETED, { resource_info: 'a b' }), /no project/],
    [plain(DELETED, { resource_info: 'a\u0000' }), /no project/],
    [plain(DELETED, { resource_info: '\u202eabc' }), /no project/],
    [plain(DELETED, { resource_info: '\ud800' }), /no project/],
    [' '.repeat(1024 * 1024 + 1), /larger than/],
  ]
  for (const [body, reason] of cases) {
    const read = parseNotification(body)
    t.match(read, { kind: 'malformed', reason }, JSON.stringify(body)?.slice(0, 100))
  }
})

t.test('arbitrary input never counts as a deletion unless it names a project', async () => {
  const id = fc.oneof(fc.string(), anyText(), fc.constant(PROJECT), fc.jsonValue())
  const payload = fc.oneof(fc.jsonValue(), fc.record({ resource_info: id }), fc.record({ target: fc.record({ id }) }))
  const eventType = fc.oneof(
    fc.string(),
    fc.constant(DELETED),
    fc.mixedCase(fc.constant(DELETED)),
    fc.array(fc.constantFrom('identity', 'project', 'deleted', 'user')).map(parts => parts.join('.')),
  )
  const message = fc.oneof(fc.jsonValue(), fc.record({ event_type: eventType, payload }, { requiredKeys: [] }))
  const body = fc.oneof(
    fc.uint8Array({ maxLength: 300 }).map(bytes => Buffer.from(bytes)),
    fc.tuple(message, fc.constantFrom(...FORMS)).map(([value, form]) => form(value)),
  )
  fc.assert(
    fc.property(body, input => {
      const read = parseNotification(input)
      if (read.kind !== 'project deleted') return ['ignored', 'malformed'].includes(read.kind)
      const text = (Buffer.isBuffer(input) ? input.toString() : JSON.stringify(input)).toLowerCase()
      return /^[^\p{C}\p{Z}]{1,64}$/u.test(read.projectId) && text.includes('identity.project.deleted')
    }),
    { numRuns: 3_000 },
  )
})

t.test('transport URLs of oslo.messaging are parsed or refused with a reason', async t => {
  const login = { username: 'key-manager', password: 'p:w', virtualHost: '/', tls: false }
  t.same(parseTransportUrl('amqp://key-manager:p:w@bus'), { hosts: [{ host: 'bus', port: 5672 }], ...login })
  t.same(parseTransportUrl('rabbit://key-manager:p%3Aw@bus:1//'), { hosts: [{ host: 'bus', port: 1 }], ...login })
  t.match(parseTransportUrl('amqps://a:b@bus/%2F'), { hosts: [{ port: 5671 }], tls: true, virtualHost: '/' })
  t.match(parseTransportUrl('amqp://a:b@bus/cloud'), { virtualHost: 'cloud' })
  t.match(parseTransportUrl('amqp://bus'), { username: 'guest', password: 'guest' })
  t.match(parseTransportUrl('amqp://a@[::1]:77/'), { hosts: [{ host: '::1', port: 77 }], username: 'a', password: '' })
  t.match(parseTransportUrl('amqp://a:%40%2F%2C%25@bus/'), { password: '@/,%' })
  t.match(parseTransportUrl('rabbit://a:b@one:1,a:b@two,three:3/cloud'), {
    hosts: [
      { host: 'one', port: 1 },
      { host: 'two', port: 5672 },
      { host: 'three', port: 3 },
    ],
    username: 'a',
    virtualHost: 'cloud',
  })
  const refused: [url: string, must: RegExp][] = [
    ['', /a URL such as/],
    ['http://bus/', /a URL such as/],
    ['amqp://', /a URL such as/],
    ['amqp://a:b@bus/?ssl=1', /a URL such as/],
    ['amqp://a:b@bus:0/', /hosts/],
    ['amqp://a:b@bus:65536/', /hosts/],
    ['amqp://a:b@bu s/', /hosts/],
    ['amqp://a:b@one,/', /hosts/],
    ['amqp://a:b@one,c:d@two/', /same user/],
    ['amqp://a:b@one,[::1]/', /several hosts/],
    ['amqp://a:%zz@bus/', /percent-encoded/],
    ['amqp://a:b@bus/%zz', /percent-encoded/],
  ]
  for (const [url, must] of refused) {
    const said = parseTransportUrl(url)
    t.match(said, must, url)
    const text = JSON.stringify({ key_manager: { keystone_notifications: { transport_url: url } } })
    t.throws(() => parseConfiguration(text, {}), { message: /transport_url: its value \(not shown\).*must be/ })
  }
})

t.test('by default, the listener is off and uses Keystone’s names', async t => {
  t.match(parseConfiguration('', {}).key_manager.keystone_notifications, {
    enable: false,
    control_exchange: 'keystone',
    topic: 'notifications',
    pool_name: undefined,
    allow_requeue: false,
    thread_pool_size: 10,
    transport_url: undefined,
  })
  const prefix = 'KRATER_KEY_MANAGER_KEYSTONE_NOTIFICATIONS'
  const environment = { [`${prefix}_ENABLE`]: 'yes', [`${prefix}_TRANSPORT_URL`]: 'amqp://a:b@bus/' }
  t.match(parseConfiguration('', environment).key_manager.keystone_notifications, {
    enable: true,
    transport_url: { username: 'a' },
  })
})

t.test('handling a notification', async t => {
  const message = plain(DELETED, basicPayload(PROJECT))
  const never = new AbortController().signal
  const setUp = (eraseProject: EraseProject, allowRequeue = false) => {
    const recorded = recordLog()
    return { ...recorded, handle: createHandler({ eraseProject, allowRequeue, log: recorded.log, pauseMs: 1 }) }
  }
  const away = () => Promise.reject(Object.assign(new Error('connect'), { code: 'ECONNREFUSED' }))
  const broken = () => Promise.reject(new Error('out of order'))

  await t.test('acknowledges the message only after the erasure', async t => {
    let finish = () => undefined as unknown
    const { handle } = setUp(() => new Promise(resolve => (finish = () => resolve({ secrets: 1 }))))
    let verdict: string | null = null
    const handled = handle(message, never).then(said => (verdict = said))
    await new Promise(setImmediate)
    t.equal(verdict, null)
    finish()
    t.equal(await handled, 'acknowledge')
  })

  await t.test('waits for an unavailable database, even when requeuing is not allowed', async t => {
    let tries = 0
    const { handle, lines } = setUp(() => (++tries < 4 ? away() : Promise.resolve({ secrets: 1 })))
    t.equal(await handle(message, never), 'acknowledge')
    t.equal(tries, 4)
    t.match(lines.at(-1), { msg: 'project erased', erased: { secrets: 1 } })
  })

  await t.test('requeues an unfinished message when the listener stops', async t => {
    const stopped = AbortSignal.abort()
    t.equal(await setUp(away).handle(message, stopped), 'requeue')
    t.equal(await setUp(broken, true).handle(message, stopped), 'requeue')
    t.equal(await setUp(async () => ({})).handle(message, stopped), 'acknowledge', 'a finished erasure is acknowledged')
  })

  await t.test('requeues a failed erasure only when that is allowed', async t => {
    t.equal(await setUp(broken).handle(message, never), 'acknowledge')
    const { handle, lines } = setUp(broken, true)
    for (let at = 0; at < 3; at++) t.equal(await handle(message, never), 'requeue')
    t.same(
      lines.map(({ failures }) => failures),
      [1, 2, 3],
    )
  })
})

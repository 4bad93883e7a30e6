import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { Connection } from 'rabbitmq-client'
import t, { type Test } from 'tap'
import { parseConfiguration } from '../../../../controller/config/load.js'
import { eraseProject } from '../../../../controller/key-manager/erase-project.js'
import type { EraseProject } from '../../../../controller/key-manager/keystone-listener/handle.js'
import { startKeystoneListener } from '../../../../controller/key-manager/keystone-listener/listener.js'
import { tokenOf } from '../../../support/clients/callers.js'
import { startTestKeyManager } from '../../../support/clients/key-manager-api.js'
import { startAmqpProxy } from '../../../support/faults/amqp-proxy.js'
import { type LogLine, type RecordedLog, recordLog } from '../../../support/recorded-log.js'
import { basicPayload, cadfPayload, startNotifier } from '../../../support/services/keystone-notifier.js'
import { startRabbitMq } from '../../../support/services/rabbitmq.js'
import { until } from '../../../support/worlds/krater.js'

const DELETED = 'identity.project.deleted'
const CONNECTED = 'connected; consuming notifications'
const ERASED = 'project erased'

const [rabbit, keyManager] = await Promise.all([startRabbitMq(t), startTestKeyManager()])
t.teardown(keyManager.stop)
const notify = startNotifier(t, rabbit)
const bus = new Connection(rabbit.url)
bus.on('error', () => undefined)
t.teardown(() => bus.close())

const logs: RecordedLog[] = []
const eraseForReal: EraseProject = projectId => eraseProject(keyManager.database, projectId)

let projects = 0
/** A new project with two secrets. */
async function projectWithSecrets(): Promise<string> {
  projects += 1
  const project = projects.toString(16).padStart(32, 'a')
  for (const payload of ['one', 'two']) {
    await keyManager.store({ payload, payload_content_type: 'text/plain' }, tokenOf('creator', project))
  }
  return project
}

const secretsOf = async (project: string): Promise<number> => {
  const reply = await keyManager.ask('GET', '/v1/secrets', undefined, { token: tokenOf('creator', project) })
  return Number(reply.body.total)
}

type Given = { url?: string; caFile?: string; erase?: EraseProject; settings?: Record<string, unknown> }

/** Starts a listener in this process. It stops with the test. */
async function listen(t: Test, { url = rabbit.url, caFile, erase = eraseForReal, settings = {} }: Given = {}) {
  const recorded = recordLog()
  logs.push(recorded)
  const text = JSON.stringify({ key_manager: { keystone_notifications: { ...settings, transport_url: url } } })
  const parsed = parseConfiguration(text, {}).key_manager.keystone_notifications
  if (parsed.transport_url === undefined) throw new Error('no URL')
  const { stop } = startKeystoneListener({
    transport: parsed.transport_url,
    ...(caFile === undefined ? {} : { certificateAuthority: readFileSync(caFile, 'utf8') }),
    settings: parsed,
    eraseProject: erase,
    log: recorded.log,
  })
  let running = true
  const once = async () => {
    if (running) await stop()
    running = false
  }
  t.teardown(once)
  return { ...recorded, stop: once, connected: () => recorded.line(CONNECTED) }
}

const erasedOf = (project: string) => (line: LogLine) => line.projectId === project

/** Counts the messages in a queue, including unacknowledged ones once no listener is left. */
const waiting = async (queue = 'notifications.info'): Promise<number> =>
  (await bus.queueDeclare({ queue, passive: true })).messageCount

/** Publishes a raw body to the default queue. */
const publish = async (body: string | Buffer, properties: Record<string, unknown> = {}) => {
  const publisher = bus.createPublisher({ confirm: true })
  await publisher.send({ exchange: 'keystone', routingKey: 'notifications.info', ...properties }, body)
  await publisher.close()
}

t.test('a deletion that oslo.messaging announces erases the project’s secrets', async t => {
  const [first, second, third, fourth, kept] = await Promise.all(Array.from({ length: 5 }, projectWithSecrets))
  await notify(DELETED, basicPayload(first!))
  t.equal(await waiting(), 1, 'the queue keeps the message before any listener has run')
  const listener = await listen(t)
  t.match(await listener.line(ERASED), { projectId: first, erased: { secrets: 2, containers: 0 }, level: 30 })
  t.match(await listener.connected(), { bus: `127.0.0.1:${rabbit.port}`, queue: 'notifications.info', level: 30 })

  await notify(DELETED, cadfPayload(second!))
  await notify(DELETED, basicPayload(third!), { driver: 'messaging' })
  await notify('Identity.PROJECT.Deleted', cadfPayload(fourth!))
  for (const project of [second!, third!, fourth!]) await listener.line(ERASED, erasedOf(project))
  for (const project of [first!, second!, third!, fourth!]) t.equal(await secretsOf(project), 0)
  t.equal(await secretsOf(kept!), 2, 'another project’s secrets remain')

  await listener.stop()
  t.equal(await waiting(), 0, 'all messages are acknowledged')
  await notify(DELETED, basicPayload(kept!))
  t.equal(await waiting(), 1, 'the queue keeps the message while no listener runs')
  await (await listen(t)).line(ERASED, erasedOf(kept!))
  t.equal(await secretsOf(kept!), 0)
})

t.test('other and unreadable notifications are acknowledged and change nothing', async t => {
  const project = await projectWithSecrets()
  const listener = await listen(t)
  await listener.connected()
  const events = [
    'identity.project.updated',
    'identity.user.deleted',
    'identity.domain.deleted',
    'compute.project.deleted',
  ]
  for (const event of events) {
    await notify(event, cadfPayload(project))
    t.match(await listener.line('notification ignored', line => line.eventType === event), { level: 20 })
  }
  await notify(DELETED, cadfPayload(project, 'failure'))
  await listener.line('notification ignored', line => line.eventType === DELETED)

  const unreadable: [body: string | Buffer, reason: RegExp, properties?: Record<string, unknown>][] = [
    ['{"oslo.version": "2.0", "oslo.message": "{"}', /not JSON/],
    [Buffer.from([0xff, 0x00, 0xfe]), /not JSON/, { contentType: 'application/json' }],
    ['[]', /no event_type/, { contentType: 'application/json' }],
    [JSON.stringify({ event_type: DELETED, payload: { resource_info: 'a\u0000b' } }), /names no project/],
    [Buffer.alloc(1024 * 1024 + 1, 0x20), /larger than/],
  ]
  for (const [body, reason, properties] of unreadable) {
    const before = listener.lines.length
    await publish(body, properties)
    const fresh = (line: LogLine) => listener.lines.indexOf(line) >= before
    t.match(await listener.line('ignoring a malformed notification', fresh), { reason, level: 40 })
  }
  await publish('')
  t.equal(await secretsOf(project), 2)
  await notify(DELETED, basicPayload(project))
  await listener.line(ERASED, erasedOf(project))
  await listener.stop()
  t.equal(await waiting(), 0)
})

t.test('a failed erasure', async t => {
  await t.test('is retried when requeuing is allowed', async t => {
    const project = await projectWithSecrets()
    let tries = 0
    const erase: EraseProject = id => (++tries < 3 ? Promise.reject(new Error('out of order')) : eraseForReal(id))
    const listener = await listen(t, { erase, settings: { allow_requeue: true } })
    await notify(DELETED, cadfPayload(project))
    await listener.line(ERASED, erasedOf(project))
    t.equal(tries, 3)
    t.match(
      listener.lines.filter(({ level }) => level === 50),
      [{ failures: 1 }, { failures: 2 }],
    )
    t.equal(await secretsOf(project), 0)
    await listener.stop()
    t.equal(await waiting(), 0)
  })

  await t.test('returns to the queue when the listener stops', async t => {
    const project = await projectWithSecrets()
    const erase: EraseProject = () => Promise.reject(new Error('out of order'))
    const listener = await listen(t, { erase, settings: { allow_requeue: true } })
    await notify(DELETED, cadfPayload(project))
    await listener.line('could not erase the project; retrying')
    await listener.stop()
    t.equal(await waiting(), 1)
    await (await listen(t)).line(ERASED, erasedOf(project))
  })

  await t.test('is acknowledged and logged when requeuing is not allowed', async t => {
    const project = await projectWithSecrets()
    const erase: EraseProject = () => Promise.reject(new Error('out of order'))
    const listener = await listen(t, { erase })
    await notify(DELETED, cadfPayload(project))
    const sentence = 'could not erase the project; run `krater key-manager sync-projects` to erase it'
    t.match(await listener.line(sentence), { level: 50, projectId: project, err: { message: 'out of order' } })
    await listener.stop()
    t.equal(await waiting(), 0)
    t.equal(await secretsOf(project), 2)
  })
})

t.test('exchanges and queues', async t => {
  await t.test('the listener uses an existing exchange and queue with other flags', async t => {
    const project = await projectWithSecrets()
    const place = { exchange: 'openstack', topic: 'durable', rabbit: { amqp_durable_queues: true } }
    await notify(DELETED, cadfPayload(project), place)
    const listener = await listen(t, { settings: { control_exchange: 'openstack', topic: 'durable' } })
    await listener.line(ERASED, erasedOf(project))
  })

  await t.test('a Keystone with the same settings can use what the listener declares', async t => {
    for (const [exchange, rabbitSettings] of [
      ['transient', { amqp_durable_queues: false }],
      ['durable', { amqp_durable_queues: true }],
      ['short-lived', { amqp_auto_delete: true }],
      ['quorum', { rabbit_quorum_queue: true }],
    ] as const) {
      const project = await projectWithSecrets()
      const listener = await listen(t, { settings: { control_exchange: exchange, topic: exchange, ...rabbitSettings } })
      await listener.connected()
      await notify(DELETED, cadfPayload(project), { exchange, topic: exchange, rabbit: rabbitSettings })
      await listener.line(ERASED, erasedOf(project))
      await listener.stop()
      t.pass(exchange)
    }
  })

  await t.test('listeners share a topic’s queue; a pool gets its own copy', async t => {
    const heard: string[] = []
    const as =
      (name: string): EraseProject =>
      async () => {
        heard.push(name)
        return {}
      }
    const place = { control_exchange: 'shared', topic: 'shared' }
    const listeners = [
      await listen(t, { erase: as('shared'), settings: place }),
      await listen(t, { erase: as('shared'), settings: place }),
      await listen(t, { erase: as('pool'), settings: { ...place, pool_name: 'key-manager-pool' } }),
    ]
    await Promise.all(listeners.map(listener => listener.connected()))
    await notify(DELETED, cadfPayload('f00'), { exchange: 'shared', topic: 'shared' })
    await until('both listeners got the message', () => heard.length === 2)
    await Promise.all(listeners.map(listener => listener.stop()))
    t.same(heard.sort(), ['pool', 'shared'])
    t.same([await waiting('shared.info'), await waiting('key-manager-pool')], [0, 0])
  })

  await t.test('the listener declares a deleted queue again', async t => {
    const project = await projectWithSecrets()
    const listener = await listen(t)
    await listener.connected()
    await bus.queueDelete({ queue: 'notifications.info' })
    await until('the queue is declared again', () => listener.lines.filter(({ msg }) => msg === CONNECTED).length === 2)
    await publish(JSON.stringify({ event_type: DELETED, payload: basicPayload(project) }))
    await listener.line(ERASED, erasedOf(project))
  })

  await t.test('over TLS the listener connects only to a broker whose certificate it trusts', async t => {
    const project = await projectWithSecrets()
    const doubtful = await listen(t, { url: rabbit.tlsUrl })
    t.match(await doubtful.line('cannot connect to the message bus; retrying'), {
      err: { code: 'DEPTH_ZERO_SELF_SIGNED_CERT' },
    })
    await doubtful.stop()
    const listener = await listen(t, { url: rabbit.tlsUrl, caFile: rabbit.caFile })
    await listener.connected()
    await notify(DELETED, cadfPayload(project))
    await listener.line(ERASED, erasedOf(project))
  })

  await t.test('a wrong password is logged without its text, and stopping does not wait', async t => {
    const listener = await listen(t, { url: `amqp://key-manager:wrong-word@127.0.0.1:${rabbit.port}` })
    t.match(await listener.line('cannot connect to the message bus; retrying'), {
      err: { code: 'ACCESS_REFUSED' },
    })
    await listener.stop()
    t.notMatch(listener.text(), 'wrong-word')
  })
})

t.test('the keystone-listener process', async t => {
  const directory = mkdtempSync(join(tmpdir(), 'krater-keystone-listener-'))
  const running = new Set<ReturnType<typeof spawn>>()
  t.teardown(() => {
    for (const child of running) child.kill('SIGKILL')
    rmSync(directory, { recursive: true, force: true })
  })
  const proxy = await startAmqpProxy(t, rabbit.port)
  const url = rabbit.url.replace(`:${rabbit.port}/`, `:${proxy.port}/`)
  const words: string[] = []
  const start = (settings: Record<string, unknown>) => {
    const database = { key_manager: keyManager.databaseUrl }
    const text = JSON.stringify({ database, log_level: 'trace', key_manager: { keystone_notifications: settings } })
    writeFileSync(join(directory, 'krater.yaml'), text, { mode: 0o600 })
    const kept = Object.entries(process.env).filter(([name]) => !/^(KRATER_|TAP)/.test(name))
    const child = spawn(process.execPath, ['dist/krater.js', '--state-dir', directory, 'keystone-listener'], {
      env: Object.fromEntries(kept),
    })
    running.add(child)
    const ended = once(child, 'exit')
    const lines = new Set<string>()
    for (const stream of [child.stdout, child.stderr]) {
      createInterface({ input: stream }).on('line', line => {
        lines.add(line)
        words.push(line)
      })
    }
    const says = (text: string) =>
      until(`the listener prints: ${text}`, () => [...lines].some(line => line.includes(text)))
    return { child, ended, says, lines }
  }

  await t.test('refuses to start without its settings and names those that are missing', async t => {
    for (const [settings, sentence] of [
      [{}, 'key_manager.keystone_notifications.enable is false'],
      [{ enable: true }, 'transport_url is not set'],
      [{ enable: true, transport_url: url, ca_file: '/nowhere.pem' }, 'ca_file cannot be read'],
    ] as const) {
      const { ended, says } = start(settings)
      await says(sentence)
      t.same(await ended, [1, null])
    }
  })

  await t.test('receives the message again when it is killed before it acknowledges', async t => {
    const project = await projectWithSecrets()
    const settings = { enable: true, transport_url: url }
    const first = start(settings)
    await first.says(CONNECTED)
    proxy.holdClients()
    await notify(DELETED, cadfPayload(project))
    await first.says(ERASED)
    first.child.kill('SIGKILL')
    await first.ended
    t.equal(await secretsOf(project), 0)
    await until('the broker requeues the message', async () => (await waiting()) === 1)

    proxy.letClientsSpeak()
    const second = start(settings)
    await second.says(ERASED)
    t.match(
      [...second.lines].map(line => JSON.parse(line) as LogLine).find(({ msg }) => msg === ERASED),
      { projectId: project, erased: { secrets: 0 } },
    )
    second.child.kill('SIGTERM')
    t.same(await second.ended, [0, null])
    t.equal(await waiting(), 0)
  })

  await t.test('never logs the password', async t => {
    const text = [...words, ...logs.map(({ text }) => text())].join('\n')
    t.match(text, ERASED)
    t.notMatch(text, rabbit.password)
  })
})

t.test('the listener follows again after the broker is killed and restarted', async t => {
  const [before, after] = [await projectWithSecrets(), await projectWithSecrets()]
  const listener = await listen(t)
  await listener.connected()
  await notify(DELETED, cadfPayload(before))
  await listener.line(ERASED, erasedOf(before))
  await rabbit.kill()
  await listener.line('cannot connect to the message bus; retrying')
  await rabbit.start()
  // Neither the exchange nor the queue was durable, so both are lost.
  await until('the listener reconnects', () => listener.lines.filter(({ msg }) => msg === CONNECTED).length === 2)
  await notify(DELETED, cadfPayload(after))
  await listener.line(ERASED, erasedOf(after))
})

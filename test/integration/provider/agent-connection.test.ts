import { randomBytes } from 'node:crypto'
import { type AddressInfo, createServer } from 'node:net'
import { setTimeout as wait } from 'node:timers/promises'
import t from 'tap'
import type { Desired } from '../../../amphora-agent/protocol/desired.js'
import { encodeFrame } from '../../../amphora-agent/protocol/frames.js'
import { AGENT_SOCKET } from '../../../amphora-agent/protocol/messages.js'
import { PROTOCOL_VERSION } from '../../../amphora-agent/protocol/version.js'
import { AgentRefused, AgentUnreachable } from '../../../controller/provider/amphora/agent/connection.js'
import { createNoopAgentConnections } from '../../../controller/provider/amphora/agent/connection-noop.js'
import {
  AMPHORA,
  answerHello,
  createAmphora,
  createConnections,
  HELLO,
  HOST_KEY,
  hello,
  unreachable,
} from '../../support/faults/faulty-amphora.js'
import { newSshKeyPair } from '../../support/inputs/ssh-keys.js'
import { ownPorts } from '../../support/ports.js'
import { eventually } from '../../support/worlds/machines.js'

const stranger = newSshKeyPair()

t.test('requests', async t => {
  t.test('share one connection and one channel to the agent', async t => {
    const { seen, target } = await createAmphora(t)
    const connections = createConnections(t)
    const answers = await Promise.all(Array.from({ length: 50 }, () => connections.request(target, hello)))
    t.same(answers, Array(50).fill(HELLO))
    t.same(await connections.request(target, hello), HELLO)
    t.same(seen, { connections: 1, logins: 1, open: 1, streams: 1, sockets: [AGENT_SOCKET] })
  })

  t.test('fail with a sentence if the agent speaks a protocol that is too new', async t => {
    const result = { agentVersion: '7.1.0', protocolVersion: PROTOCOL_VERSION + 2 }
    const { target } = await createAmphora(t, ({ id }, channel) => channel.write(encodeFrame({ id, ok: true, result })))
    await t.rejects(createConnections(t).request(target, hello), {
      name: 'AgentIncompatible',
      message: `The agent 7.1.0 speaks version ${PROTOCOL_VERSION + 2} of the protocol, which is too new for this controller with ${PROTOCOL_VERSION}. Update the controller.`,
    })
  })

  t.test('get their own answers, in any order and in pieces', async t => {
    const held: (() => void)[] = []
    const { target } = await createAmphora(t, (request, channel) => {
      const lines = request.verb === 'logs' ? request.lines : 0
      const frame = encodeFrame({ id: request.id, ok: true, result: { lines: [String(lines)] } })
      held.push(() => {
        for (const byte of frame) channel.write(Buffer.of(byte))
      })
      if (held.length === 3) for (const send of held.reverse()) send()
    })
    const connections = createConnections(t)
    const answers = [1, 2, 3].map(lines => connections.request(target, { verb: 'logs', lines }))
    t.same(await Promise.all(answers), [{ lines: ['1'] }, { lines: ['2'] }, { lines: ['3'] }])
  })

  t.test('carry large states', async t => {
    const desired = { generation: 7, haproxy: { text: 'x'.repeat(6_000_000) } } as Desired
    const { target } = await createAmphora(t, (request, channel) => {
      if (request.verb !== 'apply') return
      const appliedGeneration = request.desired.haproxy?.text.length ?? 0
      const result = { appliedGeneration, appliedSha256: 'a', transition: 'reload', reason: 'r', milliseconds: 1 }
      channel.write(encodeFrame({ id: request.id, ok: true, result }))
    })
    const applied = await createConnections(t).request(target, { verb: 'apply', desired })
    t.match(applied, { appliedGeneration: 6_000_000, transition: 'reload' })
  })

  t.test('that the agent refuses fail with the agent’s text, cut to a readable length', async t => {
    const error = { code: 'invalid-configuration', message: 'no', details: '[ALERT] line 3'.padEnd(10_000) } as const
    const said = { ...error, details: error.details.padEnd(1_000_000, '!') }
    const { target } = await createAmphora(t, ({ id }, channel) =>
      channel.write(encodeFrame({ id, ok: false, error: said })),
    )
    const failure = await createConnections(t)
      .request(target, hello)
      .catch((thrown: unknown) => thrown)
    if (!(failure instanceof AgentRefused)) throw failure
    t.same(failure.error, error)
    t.match(failure, { amphoraId: AMPHORA, message: 'no' })
  })
})

t.test('a connection', async t => {
  t.test('is refused before login when the host key differs', async t => {
    const { seen, target } = await createAmphora(t, answerHello, { hostKey: stranger.private })
    const connections = createConnections(t)
    await t.rejects(connections.request(target, hello), unreachable('wrong-host-key', /not this amphora/))
    t.equal(seen.logins, 0)
    const shorter = { ...target, hostKey: target.hostKey.subarray(0, 10) }
    await t.rejects(connections.request(shorter, hello), unreachable('wrong-host-key'))
    const none = { ...target, hostKey: Buffer.alloc(0) }
    await t.rejects(connections.request(none, hello), unreachable('wrong-host-key'))
  })

  t.test('fails when the machine does not accept the key', async t => {
    const { target } = await createAmphora(t)
    const connections = createConnections(t, { controllerKey: stranger.private })
    await t.rejects(connections.request(target, hello), unreachable('authentication', /does not accept/))
  })

  t.test('times out when the machine sends nothing', async t => {
    const silent = createServer(socket => socket.on('error', () => undefined).resume())
    await new Promise<void>(resolve => silent.listen(0, '127.0.0.1', resolve))
    const { port } = silent.address() as AddressInfo
    const target = { amphoraId: AMPHORA, host: '127.0.0.1', port, hostKey: HOST_KEY }
    const connections = createConnections(t)
    const since = performance.now()
    await t.rejects(connections.request(target, hello, { connectTimeoutMs: 300 }), unreachable('no-answer', /0\.3 s/))
    await t.rejects(connections.request(target, hello, { timeoutMs: 300 }), unreachable('no-answer'))
    t.ok(performance.now() - since < 3_000)
    silent.close()
  })

  t.test('fails with the reason "refused" when it is refused', async t => {
    const { target } = await createAmphora(t)
    const [port = 0] = await ownPorts(1)
    const connections = createConnections(t)
    const failure = connections.request({ ...target, port }, hello, { connectTimeoutMs: 400 })
    await t.rejects(failure, unreachable('refused', /refuses SSH/))
  })

  t.test('waits for an agent that is still starting', async t => {
    let refusals = 2
    const { seen, target } = await createAmphora(t, answerHello, { acceptsSocket: () => refusals-- === 0 })
    t.same(await createConnections(t).request(target, hello), HELLO)
    t.equal(seen.sockets.length, 3)
    t.equal(seen.connections, 1)
  })

  t.test('fails when the agent never starts', async t => {
    const warnings: string[] = []
    const hear = ({ name }: Error) => warnings.push(name)
    process.on('warning', hear)
    t.teardown(() => process.off('warning', hear))
    const { target } = await createAmphora(t, answerHello, { acceptsSocket: () => false })
    const failure = createConnections(t).request(target, hello, { connectTimeoutMs: 1_500 })
    await t.rejects(failure, unreachable('refused', /agent .* is not running/))
    t.same(warnings, [], 'refusals leave no listeners behind')
  })

  t.test('that is being opened does not delay a request with a shorter timeout', async t => {
    const silent = createServer(socket => socket.on('error', () => undefined).resume())
    await new Promise<void>(resolve => silent.listen(0, '127.0.0.1', resolve))
    const { port } = silent.address() as AddressInfo
    const target = { amphoraId: AMPHORA, host: '127.0.0.1', port, hostKey: HOST_KEY }
    const connections = createConnections(t)
    const patient = connections.request(target, hello, { connectTimeoutMs: 5_000 })
    patient.catch(() => undefined)
    const since = performance.now()
    await t.rejects(connections.request(target, hello, { timeoutMs: 200 }), unreachable('no-answer'))
    t.ok(performance.now() - since < 2_000)
    connections.close(AMPHORA)
    await t.rejects(patient, unreachable('stopped'))
    silent.close()
  })

  t.test('lost between requests is reopened', async t => {
    const { seen, hangUp, target } = await createAmphora(t)
    const connections = createConnections(t)
    await connections.request(target, hello)
    hangUp()
    t.same(await connections.request(target, hello), HELLO)
    await eventually('the first is closed', () => seen.open === 1)
    t.equal(seen.connections, 2)
  })

  t.test('lost in the middle of an answer: the request is sent once more over a new one', async t => {
    const { seen, target } = await createAmphora(t, (request, channel, connection) => {
      if (request.verb !== 'status' || connection > 1) return answerHello(request, channel, connection)
      channel.write(encodeFrame({ id: request.id, ok: true, result: HELLO }).subarray(0, 20))
      channel.end()
    })
    const connections = createConnections(t)
    await connections.request(target, hello)
    await t.rejects(connections.request(target, { verb: 'status' }), unreachable('malformed-answer', /"status"/))
    t.equal(seen.connections, 2, 'the second connection answered, though not with a status')
  })

  t.test('that is lost at first use fails without a retry', async t => {
    const { seen, target } = await createAmphora(t, (_request, channel) => channel.end())
    const connections = createConnections(t)
    await t.rejects(connections.request(target, hello), unreachable('connection-lost', /lost/))
    t.equal(seen.connections, 1)
  })

  t.test('that times out stays open, and a late answer does no harm', async t => {
    const late: (() => void)[] = []
    const { seen, target } = await createAmphora(t, (request, channel, connection) => {
      const send = () => answerHello(request, channel, connection)
      if (late.length === 0) late.push(send)
      else send()
    })
    const connections = createConnections(t)
    await t.rejects(connections.request(target, hello, { timeoutMs: 400 }), unreachable('no-answer', /"hello"/))
    late[0]?.()
    t.same(await connections.request(target, hello), HELLO)
    t.equal(seen.connections, 1)
  })

  t.test('is reopened when the machine moved, and the old one is closed', async t => {
    const before = await createAmphora(t)
    const after = await createAmphora(t)
    const connections = createConnections(t)
    await connections.request(before.target, hello)
    t.same(await connections.request(after.target, hello), HELLO)
    await eventually('the old one is closed', () => before.seen.open === 0)
    t.equal(after.seen.open, 1)
  })

  t.test('is closed when idle, and reopened when needed', async t => {
    const { seen, target } = await createAmphora(t)
    const connections = createConnections(t, { idleMs: 100 })
    await connections.request(target, hello)
    await eventually('it is closed', () => seen.open === 0)
    t.same(await connections.request(target, hello), HELLO)
    t.equal(seen.connections, 2)
  })

  t.test('in use does not count as idle', async t => {
    const { seen, target } = await createAmphora(t, (request, channel, connection) => {
      setTimeout(() => answerHello(request, channel, connection), request.verb === 'logs' ? 0 : 400)
    })
    const connections = createConnections(t, { idleMs: 100 })
    const slow = connections.request(target, hello)
    await connections.request(target, { verb: 'logs', lines: 1 }).catch(() => undefined)
    t.same(await slow, HELLO)
    t.equal(seen.connections, 1)
  })
})

t.test('an agent that sends nonsense', async t => {
  const nonsense: Record<string, (id: number) => Buffer> = {
    'no JSON': () => Buffer.concat([Buffer.of(0, 0, 0, 3), Buffer.from('{{{')]),
    'a frame of 4 GB': () => Buffer.from('ffffffff', 'hex'),
    'a frame above the limit': () => Buffer.from('00900000', 'hex'),
    'no object': () => encodeFrame(null),
    'no id': () => encodeFrame({ ok: true, result: HELLO }),
    'an unknown error': id => encodeFrame({ id, ok: false, error: { code: 'sure', message: '', details: '' } }),
    'another result': id => encodeFrame({ id, ok: true, result: { lines: [] } }),
    'a wrong type': id => encodeFrame({ id, ok: true, result: { ...HELLO, appliedGeneration: '7' } }),
    'no result': id => encodeFrame({ id, ok: true }),
  }
  for (const [name, frame] of Object.entries(nonsense)) {
    t.test(`(${name}) counts as unreachable, and answers the next request`, async t => {
      const { target } = await createAmphora(t, (request, channel, connection) => {
        if (request.verb === 'logs') channel.write(frame(request.id))
        else answerHello(request, channel, connection)
      })
      const connections = createConnections(t)
      const logs = connections.request(target, { verb: 'logs', lines: 1 }, { timeoutMs: 5_000 })
      if (name === 'another result') t.same(await logs, { lines: [] }, 'the answer fits this request')
      else await t.rejects(logs, unreachable('malformed-answer', /malformed answer/))
      t.same(await connections.request(target, hello), HELLO)
    })
  }

  t.test('(noise) never breaks this process', async t => {
    const { target } = await createAmphora(t, (_request, channel) => {
      channel.write(randomBytes(300))
      channel.end()
    })
    const connections = createConnections(t)
    for (let round = 0; round < 15; round++) {
      const failure = await connections.request(target, hello, { timeoutMs: 5_000 }).catch((error: unknown) => error)
      if (!(failure instanceof AgentUnreachable)) t.fail('the agent answered')
    }
    t.pass('the agent never answered')
  })

  t.test('(answers to no request) is ignored', async t => {
    const { target } = await createAmphora(t, (request, channel, connection) => {
      for (const id of [-1, 0, 999]) answerHello({ ...request, id }, channel, connection)
      answerHello(request, channel, connection)
      answerHello(request, channel, connection)
    })
    const connections = createConnections(t)
    t.same(await connections.request(target, hello), HELLO)
    t.same(await connections.request(target, hello), HELLO)
  })
})

t.test('closing', async t => {
  t.test('one amphora fails its pending requests at once', async t => {
    const { seen, target } = await createAmphora(t, () => undefined)
    const connections = createConnections(t)
    const pending = connections.request(target, hello)
    pending.catch(() => undefined)
    await eventually('it is connected', () => seen.sockets.length === 1)
    await wait(50)
    connections.close(AMPHORA)
    await t.rejects(pending, unreachable('connection-lost'))
    await eventually('nothing is open', () => seen.open === 0)
    t.equal(seen.connections, 1)
    connections.close('00000000-0000-4000-8000-000000000000')
  })

  t.test('all leaves no socket and refuses further requests', async t => {
    const { seen, target } = await createAmphora(t, (request, channel, connection) => {
      if (request.verb === 'hello') answerHello(request, channel, connection)
    })
    const connections = createConnections(t)
    await connections.request(target, hello)
    const pending = connections.request(target, { verb: 'status' })
    pending.catch(() => undefined)
    const silent = createServer(socket => socket.on('error', () => undefined).resume())
    await new Promise<void>(resolve => silent.listen(0, '127.0.0.1', resolve))
    const elsewhere = { ...target, amphoraId: 'other', port: (silent.address() as AddressInfo).port }
    const connecting = connections.request(elsewhere, hello)
    connecting.catch(() => undefined)
    await wait(100)
    await connections.stop()
    await t.rejects(pending, { name: 'AgentUnreachable' })
    await t.rejects(connecting, { name: 'AgentUnreachable', reason: 'stopped' })
    await t.rejects(connections.request(target, hello), unreachable('stopped'))
    await eventually('nothing is open', () => seen.open === 0)
    silent.close()
    await connections.stop()
    const sockets = () => process.getActiveResourcesInfo().filter(name => name === 'TCPSocketWrap')
    await eventually('no socket is left', () => sockets().length === 0)
  })
})

t.test('the noop agents answer at once and remember what was applied', async t => {
  const agents = createNoopAgentConnections()
  const target = { amphoraId: AMPHORA, host: '192.0.2.1', hostKey: Buffer.alloc(0) }
  t.match(await agents.request(target, hello), { appliedGeneration: 0, appliedSha256: null })
  const desired = { generation: 4, sha256: 'abc' } as Desired
  t.match(await agents.request(target, { verb: 'apply', desired }), { appliedGeneration: 4, transition: 'runtime' })
  t.match(await agents.request(target, { verb: 'apply', desired }), { appliedGeneration: 4, transition: 'unchanged' })
  t.match(await agents.request(target, { verb: 'status' }), { appliedSha256: 'abc', haproxy: { running: true } })
  t.same(await agents.request(target, { verb: 'logs', lines: 5 }), { lines: [] })
  agents.close(AMPHORA)
  t.match(await agents.request(target, hello), { appliedGeneration: 0 })
  await agents.stop()
})

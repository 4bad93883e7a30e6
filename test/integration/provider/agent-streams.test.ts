import t from 'tap'
import { AGENT_SOCKET } from '../../../amphora-agent/protocol/messages.js'
import { eventually } from '../../support/eventually.js'
import {
  AMPHORA,
  answerHello,
  createAmphora,
  createConnections,
  HELLO,
  hello,
  unreachable,
} from '../../support/faults/faulty-amphora.js'

t.test('a stream to a listener', async t => {
  const listener = { address: null, port: 443, listenerId: 'a listener' }
  const answers: ((accepts: boolean) => void)[] = []
  const acceptsSocket = (path: string) =>
    path === AGENT_SOCKET || new Promise<boolean>(resolve => answers.push(resolve))
  const relayed = async (amphora: { seen: { sockets: string[] } }, count: number) =>
    eventually('it is asked', () => amphora.seen.sockets.filter(path => path !== AGENT_SOCKET).length === count)

  t.test('that the machine never opens fails in time, and disturbs nothing', async t => {
    const { seen, target } = await createAmphora(t, answerHello, { acceptsSocket })
    const connections = createConnections(t, { idleMs: 100 })
    await connections.request(target, hello)
    await t.rejects(
      connections.relay(target, listener, 300),
      unreachable('no-answer', /opened no stream to .*relay.* within 0\.\d s/),
    )
    t.same(await connections.request(target, hello), HELLO)
    t.equal(seen.connections, 1)
    await eventually('the connection counts as idle', () => seen.open === 0)
  })

  t.test('that the machine opens too late is closed', async t => {
    const amphora = await createAmphora(t, answerHello, { acceptsSocket })
    const connections = createConnections(t)
    await connections.request(amphora.target, hello)
    await t.rejects(connections.relay(amphora.target, listener, 300), unreachable('no-answer'))
    answers.pop()?.(true)
    await connections.request(amphora.target, hello)
    await eventually('only the agent’s own stream is open', () => amphora.seen.streams === 1)
    const next = connections.relay(amphora.target, listener, 5_000)
    await relayed(amphora, 2)
    answers.pop()?.(true)
    t.ok((await next).writable)
  })

  t.test('is not asked for while too many have no answer', async t => {
    const amphora = await createAmphora(t, answerHello, { acceptsSocket })
    const connections = createConnections(t)
    await connections.request(amphora.target, hello)
    for (let opened = 0; opened < 16; opened++) {
      await t.rejects(connections.relay(amphora.target, listener, 1), unreachable('no-answer'))
    }
    await t.rejects(
      connections.relay(amphora.target, listener, 5_000),
      unreachable('no-answer', /16 streams unanswered/),
    )
    await relayed(amphora, 16)
    answers.pop()?.(false)
    await connections.request(amphora.target, hello)
    const next = connections.relay(amphora.target, listener, 5_000)
    await relayed(amphora, 17)
    answers.pop()?.(false)
    await t.rejects(next, unreachable('refused', /refuses a stream/))
  })

  t.test('fails at once when the connection ends', async t => {
    const amphora = await createAmphora(t, answerHello, { acceptsSocket })
    const connections = createConnections(t)
    for (const end of [amphora.hangUp, () => connections.close(AMPHORA)]) {
      await connections.request(amphora.target, hello)
      const asked = amphora.seen.sockets.filter(path => path !== AGENT_SOCKET).length
      const stream = connections.relay(amphora.target, listener, 60_000)
      stream.catch(() => undefined)
      await relayed(amphora, asked + 1)
      end()
      await t.rejects(stream, { name: 'AgentUnreachable' })
    }
  })
})

import t from 'tap'
import type { AgentConnections } from '../../../controller/provider/amphora/agent/connection.js'
import { AgentUnreachable } from '../../../controller/provider/amphora/agent/errors.js'
import { upgradeAgent } from '../../../controller/provider/amphora/agent/upgrade.js'

const [OLD, NEW] = ['0'.repeat(64), '1'.repeat(64)]
const target = { amphoraId: 'a', host: '192.0.2.1', hostKey: Buffer.alloc(0) }
const bundle = { sha256: NEW, content: Buffer.from('an agent') }

/** Seconds by which this process's clock is ahead. */
let ahead = 0
const now = performance.now.bind(performance)
performance.now = () => now() + ahead * 1000
t.teardown(() => {
  performance.now = now
})

/** An upgrade whose answer is lost. After a minute, the agent answers `hellos`, and then it goes on as the new one. */
function upgrade(first: object) {
  const hellos: object[] = [first, { bundle: NEW, onTrial: true, ...first }, { bundle: NEW }]
  let asked = 0
  const request = async (_: unknown, { verb }: { verb: string }) => {
    if (verb === 'upgrade') throw new AgentUnreachable('a', 'connection-lost', 'lost')
    asked += 1
    if (asked === 2) ahead += 60
    return (hellos[Math.min(asked, hellos.length) - 1] ?? {}) as never
  }
  const agents = { request } as unknown as AgentConnections
  return upgradeAgent(agents, target, bundle, () => undefined)
}

t.test('a new agent whose answer was lost gets the time that its machine needs', async t => {
  t.match(await upgrade({ bundle: OLD, trialSeconds: 110 }), { bundle: NEW })
  t.match(await upgrade({ bundle: NEW, onTrial: true, trialSeconds: 110 }), { bundle: NEW }, 'also after a crash')
  await t.rejects(upgrade({ bundle: OLD, trialSeconds: 30 }), { message: /within 30 s/ })
  await t.rejects(upgrade({ bundle: OLD }), { message: /within 30 s/ }, 'an agent that does not say how long')
})

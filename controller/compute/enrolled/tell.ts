import type { Forwarding } from '../../../amphora-agent/protocol/forwarding.js'
import type { Database } from '../../database/connection.js'
import type { Logger } from '../../log/log.js'
import type { EnrolledContext } from '../host-agents.js'
import { type EnrolledHost, enrolledHosts, recordTold } from './hosts.js'
import { ASK_MS } from './turn.js'

type Telling = EnrolledContext & { database: Database; log: Logger }

/** Time after which a host that could not be told is tried again. */
const RETRY_MS = 60_000

/**
 * Keeps telling the hosts where the controllers are, whenever that has changed.
 * @returns begins with those that do not know yet; a slow or silent host keeps no other one waiting
 */
export function createTeller(telling: Telling): () => Promise<void> {
  const { database, agents, forwarding, log } = telling
  const notBefore = new Map<string, number>()

  async function tell(host: EnrolledHost, next: Forwarding): Promise<void> {
    const { controllers } = next
    notBefore.set(host.id, Number.POSITIVE_INFINITY)
    try {
      await agents.forward(host, next, ASK_MS)
      await recordTold(database, host, controllers)
      log.info({ host: host.name, controllers }, 'an enrolled host knows where the controllers are')
      notBefore.delete(host.id)
    } catch (error) {
      log.warn(
        { host: host.name, controllers, err: error },
        'an enrolled host cannot be told where the controllers are',
      )
      notBefore.set(host.id, performance.now() + RETRY_MS)
    }
  }

  return async () => {
    const next = await forwarding()
    // Until a controller host has an address, those of the enrolment hold.
    if (next.controllers.length === 0) return
    for (const host of await enrolledHosts(database)) {
      const { id, state, toldControllers } = host
      if (state === 'enrolling' || state === 'retiring' || performance.now() < (notBefore.get(id) ?? 0)) continue
      if (JSON.stringify(toldControllers) === JSON.stringify(next.controllers)) continue
      void tell(host, next)
    }
  }
}

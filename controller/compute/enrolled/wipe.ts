import type { Boot } from '../../../amphora-agent/protocol/boot.js'
import type { Database } from '../../database/connection.js'
import type { Logger } from '../../log/log.js'
import { HEARTBEAT_KEY_ID, heartbeatKey } from '../amphora-identity.js'
import type { EnrolledContext } from '../host-agents.js'
import { throughForwarder } from './enrolment/install.js'
import { type EnrolledHost, hostsToWipe, leaveState, raiseTurn, recordReason } from './hosts.js'
import { ASK_MS, takeTurn } from './turn.js'

type Wiping = EnrolledContext & { database: Database; log: Logger }

const SURVEY_MS = 15_000

/** What a host is while it carries no amphora: it sends heartbeats and serves nothing. */
export const freeBoot = (
  {
    masterKey,
    heartbeatPort,
    beatIntervalSeconds,
  }: Pick<EnrolledContext, 'masterKey' | 'heartbeatPort' | 'beatIntervalSeconds'>,
  { id, turn }: Pick<EnrolledHost, 'id' | 'turn'>,
): Boot => ({
  amphoraId: id,
  heartbeatKey: heartbeatKey(masterKey, HEARTBEAT_KEY_ID, id).toString('hex'),
  heartbeatKeyId: HEARTBEAT_KEY_ID,
  healthManagers: [throughForwarder(heartbeatPort)],
  beatIntervalSeconds,
  host: { id, turn },
})

/**
 * Ends what a host carries, removes all of it, and looks at it anew. It is free if nothing is left, and otherwise broken:
 * an operator decides. Says nothing if another controller was faster.
 * @throws Error if the host does not answer; it stays to be wiped
 */
async function wipeHost(wiping: Wiping, host: EnrolledHost): Promise<void> {
  const { database, agents, log } = wiping
  const begun = await agents.turn(host, ASK_MS)
  if (begun > host.turn) {
    // An older copy of the database is in use. The host obeys later turns only.
    if (await raiseTurn(database, host, begun + 1)) log.warn({ host: host.name, begun }, 'an enrolled host is ahead')
    return
  }
  await takeTurn(agents, host, freeBoot(wiping, host))
  const found = await agents.survey(host, SURVEY_MS)
  if (found.length === 0) {
    if (await leaveState(database, host, { state: 'free' })) {
      log.info({ host: host.name }, 'an enrolled host is wiped and free')
    }
    return
  }
  const reason = `It is not empty after a wipe: ${found.join('; ')}`
  if (await leaveState(database, host, { state: 'broken', reason })) {
    log.error({ host: host.name, found }, 'an enrolled host is not empty after a wipe; no amphora gets it')
  }
}

/**
 * Keeps wiping the hosts that carry no amphora any more, whoever gave them up.
 * @returns begins with those that this process does not wipe yet; a slow or silent host keeps no other one waiting
 */
export function createWiper(wiping: Wiping): () => Promise<void> {
  const underWay = new Set<string>()
  return async () => {
    for (const host of await hostsToWipe(wiping.database)) {
      if (underWay.has(host.id)) continue
      underWay.add(host.id)
      void wipeHost(wiping, host)
        .catch(async (error: unknown) => {
          const reason = `It cannot be wiped yet: ${error instanceof Error ? error.message : String(error)}`
          if (await recordReason(wiping.database, host, reason)) {
            wiping.log.warn({ host: host.name, err: error }, 'an enrolled host cannot be wiped yet')
          }
        })
        .catch((error: unknown) => wiping.log.debug({ host: host.name, err: error }, 'the database does not answer'))
        .finally(() => underWay.delete(host.id))
    }
  }
}

import { setTimeout as sleep } from 'node:timers/promises'
import { connect } from '../../database/connection.js'
import { isDatabaseAway } from '../../database/database-away.js'
import { forgetPredecessors, forgetProcess, recordSignOfLife, SIGN_SECONDS } from '../../hosts/registry.js'
import type { Logger } from '../../log/log.js'
import { leaseOwnerPrefix } from '../../queue/lease-owner.js'
import { readHostRecord } from '../state-directory/host.js'
import type { ProcessName } from '../state-directory/run-record.js'
import { isInitialised, openInstance } from '../wiring/instance.js'
import { VERSION } from '../wiring/this-host.js'

/**
 * Records every two seconds that this process is alive, over a connection of its own, until stopped. What fails is
 * tried again, and never disturbs the process. Does nothing on what is no controller host yet.
 */
export function startSignsOfLife(directory: string, name: ProcessName, log: Logger): { stop: () => Promise<void> } {
  const hostId = isInitialised(directory) ? readHostRecord(directory)?.id : undefined
  const url = hostId === undefined ? undefined : openInstance(directory).config.database.load_balancer
  if (hostId === undefined || url === undefined) return { stop: async () => undefined }
  const stopping = new AbortController()
  const done = giveSigns({ hostId, url, name, log, signal: stopping.signal })
  return {
    stop: async () => {
      stopping.abort()
      await done
    },
  }
}

type Signs = { hostId: string; url: string; name: ProcessName; log: Logger; signal: AbortSignal }

async function giveSigns({ hostId, url, name, log, signal }: Signs): Promise<void> {
  const database = connect({ url, applicationName: `krater ${name} sign of life`, poolSize: 1 })
  const self = { name, pid: process.pid, version: VERSION, owner: leaseOwnerPrefix() }
  let isFirst = true
  let lastProblem = ''
  while (!signal.aborted) {
    try {
      if (isFirst) await forgetPredecessors(database, hostId, name)
      isFirst = false
      await recordSignOfLife(database, hostId, self)
      lastProblem = ''
    } catch (error) {
      const problem = error instanceof Error ? error.message : String(error)
      if (problem !== lastProblem && !isDatabaseAway(error)) log.warn({ err: error }, 'cannot record a sign of life')
      lastProblem = problem
    }
    await sleep(SIGN_SECONDS * 1000, undefined, { signal }).catch(() => undefined)
  }
  await forgetProcess(database, hostId, self).catch(() => undefined)
  await database.destroy()
}

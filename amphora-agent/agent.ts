import { randomBytes } from 'node:crypto'
import { mkdirSync } from 'node:fs'
import { createHandler } from './answers.js'
import { apply, type Parts, releaseOwnVips, resume } from './apply/apply.js'
import { CURRENT_HAPROXY, CURRENT_KEEPALIVED, openStore } from './apply/store.js'
import { Handovers } from './handover/handover.js'
import { createStickTables } from './handover/stick-tables.js'
import { Drain } from './haproxy/drain.js'
import { Haproxy } from './haproxy/haproxy.js'
import { createKnownDown } from './haproxy/known-down.js'
import { HAPROXY_MESSAGES } from './haproxy/messages.js'
import { serverStateFile } from './haproxy/server-state-file.js'
import { haproxyVersion } from './haproxy/validate.js'
import { Monitor } from './heartbeat/monitor.js'
import { createSender } from './heartbeat/sender.js'
import { createKeepalived, KEEPALIVED_LOG, keepalivedVersion } from './keepalived/keepalived.js'
import { machineLimits } from './limits.js'
import { keepBounded } from './log/bounded-files.js'
import { receiveHaproxyLog } from './log/haproxy-receiver.js'
import { AGENT_LOG, createLog } from './log/log.js'
import { createRepairs } from './log/repairs.js'
import { prepareMachine } from './network/configure.js'
import manifest from './package.json' with { type: 'json' }
import { haproxyGroup } from './ping/ping.js'
import { answerPings } from './ping/responder.js'
import type { Boot } from './protocol/boot.js'
import { LOG_DIRECTORY, STATE_DIRECTORY } from './protocol/paths.js'
import { Reconciler } from './reconcile/reconcile.js'
import { answerInit } from './server/answer-init.js'
import { serve } from './server/server.js'

export type Agent = {
  /** Ends the agent; HAProxy and keepalived go on. */
  stop: () => Promise<void>
}

/** Runs one piece of work after the other. */
function createTurns() {
  let last: Promise<unknown> = Promise.resolve()
  return {
    inTurn: <T>(work: () => Promise<T>): Promise<T> => {
      const turn = last.then(work)
      last = turn.catch(() => {})
      return turn
    },
    /** Settles when all that was asked for so far is done. */
    idle: () => last,
  }
}

/** Takes up what an earlier agent left running, and serves requests once that is in effect. */
export async function startAgent(boot: Boot): Promise<Agent> {
  mkdirSync(STATE_DIRECTORY, { recursive: true })
  const log = createLog()
  const bootId = randomBytes(8).toString('hex')
  log.info(`agent ${manifest.version} of amphora ${boot.amphoraId} starts, boot ${bootId}`)
  const endBounding = keepBounded([AGENT_LOG, HAPROXY_MESSAGES, KEEPALIVED_LOG])
  const endReceiving = await receiveHaproxyLog(log)
  prepareMachine(haproxyGroup(), log)
  const endPings = await answerPings(log)
  const versions = Promise.all([haproxyVersion(), keepalivedVersion()])
  versions.catch(() => {})

  const store = openStore()
  const repairs = createRepairs(log)
  const knownDown = createKnownDown()
  let monitor: Monitor | null = null
  let drain: Drain | null = null
  let reconciler: Reconciler | null = null
  const restoreFiles = () => {
    mkdirSync(LOG_DIRECTORY, { recursive: true })
    for (const text of store.restore()) repairs.note(text)
  }
  const stickTables = createStickTables(boot.amphoraId, store.confirmed, log)
  const haproxy = new Haproxy({
    configuration: CURRENT_HAPROXY,
    limits: boot.limits ?? {},
    events: {
      beforeRead: restoreFiles,
      onEnd: () => {
        repairs.note('HAProxy had ended: it is started again')
        monitor?.haproxyEnded()
        drain?.begin([])
        const part = store.confirmed()?.haproxy
        return part ? serverStateFile(null, part, knownDown.keys()) : ''
      },
      onReady: () => monitor?.haproxyReady(),
      beforeReload: async () => {
        stickTables.interrupt()
        await monitor?.beforeReload()
      },
    },
    log,
  })
  const keepalived = createKeepalived({
    configuration: CURRENT_KEEPALIVED,
    beforeRead: restoreFiles,
    onEnd: () => {
      repairs.note('keepalived had ended: it is started again')
      releaseOwnVips({ store, log }).catch(error => log.error(`VIPs not released: ${String(error)}`))
    },
    log,
  })
  // One change of the machine at a time; the first is to resume.
  const { inTurn, idle } = createTurns()
  const draining = new Drain({
    haproxy,
    limits: () => store.confirmed()?.oldWorkers ?? null,
    inTurn,
    onClosed: repairs.noteClosed,
    log,
  })
  drain = draining
  drain.start()
  const parts: Parts = { store, haproxy, drain: draining, knownDown, keepalived, log }
  const sender = createSender(boot, bootId, log)
  haproxy.adopt()
  keepalived.adopt()
  const handovers = new Handovers({ haproxy, stickTables, log })
  handovers.start()
  const drains = () => handovers.drained() !== null
  const watching = new Monitor({
    store,
    haproxy,
    knownDown,
    sender,
    repairs,
    drains,
    standing: () => ({ mismatches: reconciler?.mismatches() ?? [], needsApply: reconciler?.needsApply() ?? false }),
    onDrift: () => reconciler?.pokeHaproxy(),
    beatIntervalMs: boot.beatIntervalSeconds * 1000,
    log,
  })
  monitor = watching
  watching.start()
  const look = () => watching.look()
  if (!drains()) void inTurn(() => resume(parts))
  void inTurn(look)
  const handle = createHandler({
    bootId,
    versions,
    limits: machineLimits(boot.limits?.memoryBytes),
    store,
    haproxy,
    handovers,
    needsApply: () => reconciler?.needsApply() ?? false,
    inTurn,
    apply: async desired => {
      const result = await inTurn(() => apply(parts, desired))
      void inTurn(look)
      return result
    },
    log,
  })
  const server = await serve(handle, log)
  const endAnswering = answerInit()
  reconciler = new Reconciler({ parts, repairs, server, drains, inTurn })
  reconciler.start()

  return {
    stop: async () => {
      endAnswering()
      reconciler?.stop()
      await server.close()
      await idle()
      drain?.close()
      handovers.close()
      haproxy.close()
      keepalived.close()
      await monitor?.stop()
      await sender.close()
      await endReceiving()
      await endPings()
      endBounding()
      log.info('agent stopped')
    },
  }
}

import { mkdirSync } from 'node:fs'
import { type Parts, runKeepalived } from '../apply/apply.js'
import { planRepair } from '../haproxy/plan-repair.js'
import { serverStateFile } from '../haproxy/server-state-file.js'
import { reload } from '../haproxy/transition.js'
import { passOnInitRepairs, type Repairs } from '../log/repairs.js'
import { watchNetwork } from '../network/watch.js'
import type { Desired, HaproxyPart } from '../protocol/desired.js'
import { LOG_DIRECTORY } from '../protocol/paths.js'
import type { Mismatch } from '../protocol/repairs.js'
import type { AgentServer } from '../server/server.js'
import { MOMENT_MS, untilNextMoment } from '../time/moments.js'
import { createDisk } from './disk.js'
import { createNetworkRepair } from './network.js'
import { createSshdWatch } from './sshd.js'

/** The kernel tells of changes in the network; it is read anew now and then all the same, which takes seven processes. */
const NETWORK_MS = 300_000
/** Starts in a row that failed: the configuration itself may be the reason, so the controller is asked for it again. */
const FAILED_STARTS = 3

export type Reconciler = {
  /** HAProxy may run something else than it should: ask it, and compare now. */
  pokeHaproxy: () => void
  mismatches: () => Mismatch[]
  /** What is desired cannot be brought about from what this agent knows. */
  needsApply: () => boolean
  stop: () => void
}

/**
 * The one loop that compares all of the desired state with what is, and puts right what differs: files, sockets, processes, what HAProxy runs,
 * interfaces, addresses, routes, rules, filters, room on the disk. It takes turns with applies.
 * @param drains whether this amphora is ending with its last connection: its programs and its network are then left as they are
 * @param inTurn runs a piece of work when no other change of the machine is under way
 */
export function startReconciler({
  parts,
  repairs,
  server,
  drains,
  inTurn,
}: {
  parts: Parts
  repairs: Repairs
  server: AgentServer
  drains: () => boolean
  inTurn: (work: () => Promise<void>) => Promise<void>
}): Reconciler {
  const { store, haproxy, keepalived, log } = parts
  const disk = createDisk()
  const repairNetwork = createNetworkRepair(repairs, log)
  const watchSshd = createSshdWatch(repairs)
  let mismatches: Mismatch[] = []
  let networkReadAt = Number.NEGATIVE_INFINITY
  let network: Mismatch[] = []
  let askHaproxy = false
  let wasFull = false
  let waiting = false
  let stopped = false
  let timer: NodeJS.Timeout | null = null
  let complaint = ''
  /** Repairs of HAProxy in a row that failed. */
  let failedRepairs = 0

  const compare = async () => {
    mkdirSync(LOG_DIRECTORY, { recursive: true })
    const found = new Set<Mismatch>()
    try {
      await compareInto(found)
    } finally {
      mismatches = [...found]
    }
  }

  const compareInto = async (found: Set<Mismatch>) => {
    const { full, cleared } = disk.check()
    if (cleared || (wasFull && !full)) repairs.note('the disk was full: logs and temporary files are emptied')
    wasFull = full
    if (full) found.add('disk')
    passOnInitRepairs(repairs)
    watchSshd()
    watch.endStopped()
    if (await server.restore()) repairs.note("the agent's socket was gone")
    for (const text of store.restore()) repairs.note(text)
    const desired = store.confirmed()
    if (desired !== null && !drains()) {
      if (performance.now() - networkReadAt > NETWORK_MS || network.length > 0) {
        networkReadAt = performance.now()
        network = await repairNetwork(desired)
      }
      for (const mismatch of network) found.add(mismatch)
      await repairPrograms(desired, found)
    }
  }

  const repairPrograms = async (desired: Desired, found: Set<Mismatch>) => {
    if (haproxy.failures() >= FAILED_STARTS) found.add('haproxy')
    if (keepalived.failures() >= FAILED_STARTS) found.add('keepalived')
    if (keepalived.killStopped()) repairs.note('keepalived was stopped: it is killed and started again')
    if (desired.haproxy !== null) {
      try {
        await repairHaproxy({ ...desired, haproxy: desired.haproxy })
        failedRepairs = 0
      } catch (error) {
        failedRepairs += 1
        if (failedRepairs >= FAILED_STARTS) found.add('haproxy')
        throw error
      }
    }
    // One that ended is started again by its supervisor, with growing pauses.
    if (keepalived.failures() > 0) return
    if (await runKeepalived(keepalived, desired, desired)) repairs.note('keepalived did not run as desired')
  }

  const repairHaproxy = async (desired: Desired & { haproxy: HaproxyPart }) => {
    // One that ended is started again by its supervisor, with growing pauses.
    if (haproxy.pid() === null) {
      if (haproxy.failures() > 0) return
      return haproxy.start(serverStateFile(null, desired.haproxy, parts.knownDown.keys()))
    }
    if (!haproxy.isReachable()) {
      await reload(parts, desired.haproxy, desired.haproxy, 'its sockets were gone')
      repairs.note("HAProxy's sockets were gone: another HAProxy took over")
      return
    }
    const look = askHaproxy ? await haproxy.look(true) : null
    if (look === null) return
    const { found, commands, reload: needsReload } = planRepair(desired, look)
    const strange = haproxy.isForeign(look.workerPid)
    if (found.length === 0 && !strange) {
      askHaproxy = false
      return
    }
    for (const command of commands) await haproxy.command(command)
    if (needsReload || strange) {
      // Servers that differ themselves have no state worth keeping.
      const applied = found.some(text => text.startsWith('server')) ? null : desired.haproxy
      await reload(parts, applied, desired.haproxy, found[0] ?? 'somebody had reloaded it')
    }
    askHaproxy = false
    if (strange) repairs.note('HAProxy had been reloaded by somebody else')
    for (const text of found.slice(0, 3)) repairs.note(text)
    if (found.length > 3) repairs.note(`and ${found.length - 3} more differences of HAProxy`)
  }

  const run = () => {
    if (waiting || stopped) return
    waiting = true
    void inTurn(async () => {
      waiting = false
      if (timer) clearTimeout(timer)
      try {
        if (!stopped) await compare()
        complaint = ''
      } catch (error) {
        const words = error instanceof Error ? error.message : String(error)
        if (words !== complaint) log.error(`not compared to the end: ${words}`)
        complaint = words
      }
      // At every second moment when nothing asks for it.
      if (!stopped) timer = setTimeout(run, untilNextMoment() + MOMENT_MS)
    })
  }
  const watch = watchNetwork(
    () => {
      networkReadAt = Number.NEGATIVE_INFINITY
      run()
    },
    repairs,
    log,
  )
  run()

  return {
    pokeHaproxy: () => {
      askHaproxy = true
      run()
    },
    mismatches: () => mismatches,
    needsApply: () => mismatches.includes('haproxy') || mismatches.includes('keepalived'),
    stop: () => {
      stopped = true
      watch.close()
      if (timer) clearTimeout(timer)
    },
  }
}

import type { Logger } from '../../log/log.js'
import { explain } from '../operator-error.js'
import { type ProcessName, recordRunning } from '../state-directory/run-record.js'

const MOST_SECONDS_TO_STOP = 9

/**
 * Runs one process of a service: it starts, tells its supervisor, and stops on SIGTERM, SIGINT or when its supervisor has gone. Stopping is
 * bounded and always exits with 0, because every process must survive being killed anyway. A process that cannot start says why and exits
 * with another status.
 * @param start starts the work and returns the function that stops it
 */
export async function runUntilStopped(
  { name, stateDirectory, log }: { name: ProcessName; stateDirectory: string; log: Logger },
  start: () => Promise<() => Promise<void>>,
): Promise<void> {
  const wish = stopWish()
  const forget = recordRunning(stateDirectory, name)
  let exitStatus = 0
  try {
    const starting = start().then(stop => ({ stop }))
    const started = await Promise.race([starting, wish.then(() => null)])
    if (started !== null) {
      log.info(`${name} is ready`)
      process.send?.('ready')
    }
    const why = await wish
    log.info(`${name} stops: ${why}`)
    const limit = setTimeout(() => {
      log.warn(`${name} did not stop within ${MOST_SECONDS_TO_STOP} s and ends as it is`)
      forget()
      process.exit(0)
    }, MOST_SECONDS_TO_STOP * 1000)
    await (await starting).stop()
    clearTimeout(limit)
  } catch (error) {
    const failure = explain(error)
    process.stderr.write(`${failure.text}\n`)
    exitStatus = failure.exitStatus
  }
  forget()
  // Exit explicitly: a leftover timer, socket or IPC channel would keep a failed process alive, and it would never be restarted.
  process.exit(exitStatus)
}

function stopWish(): Promise<string> {
  return new Promise(resolve => {
    for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.once(signal, () => resolve(signal))
    process.once('disconnect', () => resolve('its supervisor has ended'))
  })
}

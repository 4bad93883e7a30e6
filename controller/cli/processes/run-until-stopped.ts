import type { Logger } from '../../log/log.js'
import { explain } from '../operator-error.js'
import { type ProcessName, recordRunning } from '../state-directory/run-record.js'

const MOST_SECONDS_TO_STOP = 9

/**
 * The life of one process of a service: it starts, says so to whoever supervises it, and stops on SIGTERM, SIGINT or when its supervisor is
 * gone. Stopping is bounded; the exit status is then 0 all the same, since every process may be killed at any instant. One that cannot start
 * says why and ends with another status.
 * @param start makes it work; what it returns undoes that
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
  // Timers, sockets and the channel to the supervisor must not keep a process alive that has stopped or failed: it would never be started again.
  process.exit(exitStatus)
}

function stopWish(): Promise<string> {
  return new Promise(resolve => {
    for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.once(signal, () => resolve(signal))
    process.once('disconnect', () => resolve('its supervisor has ended'))
  })
}

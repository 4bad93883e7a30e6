import type { Logger } from '../../log/log.js'
import { explain } from '../explain.js'
import { type ProcessName, recordRunning } from '../state-directory/run-record.js'
import { startSignsOfLife } from './signs-of-life.js'

const STOP_TIMEOUT_SECONDS = 9

/**
 * Runs one process of a service: starts it, tells its supervisor that it is ready, and stops it on SIGTERM, SIGINT,
 * SIGHUP or when its supervisor exits. Stopping takes a limited time and always exits with 0, because every process
 * must survive a kill anyway. A process that cannot start prints why and exits with another status.
 * @param start starts the work and returns the function that stops it
 */
export async function runUntilStopped(
  { name, stateDirectory, log }: { name: ProcessName; stateDirectory: string; log: Logger },
  start: () => Promise<() => Promise<void>>,
): Promise<void> {
  const stopRequest = waitForStopRequest()
  const removeRecord = recordRunning(stateDirectory, name)
  let exitStatus = 0
  try {
    const signs = startSignsOfLife(stateDirectory, name, log)
    const starting = start().then(stop => ({ stop }))
    const started = await Promise.race([starting, stopRequest.then(() => null)])
    if (started !== null) {
      log.info(`${name} is ready`)
      process.send?.('ready')
    }
    const reason = await stopRequest
    log.info(`${name} is stopping: ${reason}`)
    const limit = setTimeout(() => {
      log.warn(`${name} did not stop within ${STOP_TIMEOUT_SECONDS} s; exiting anyway`)
      removeRecord()
      process.exit(0)
    }, STOP_TIMEOUT_SECONDS * 1000)
    await (await starting).stop()
    await signs.stop()
    clearTimeout(limit)
  } catch (error) {
    const failure = explain(error, stateDirectory)
    process.stderr.write(`${failure.text}\n`)
    exitStatus = failure.exitStatus
  }
  removeRecord()
  // Exit explicitly: a leftover timer, socket or IPC channel would keep a failed process alive, and its
  // supervisor would never restart it.
  process.exit(exitStatus)
}

/** @returns the reason for stopping */
function waitForStopRequest(): Promise<string> {
  return new Promise(resolve => {
    for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.once(signal, () => resolve(signal))
    process.once('disconnect', () => resolve('its supervisor exited'))
  })
}

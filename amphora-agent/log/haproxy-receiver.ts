import { appendFileSync } from 'node:fs'
import { DgramAsPromised } from 'dgram-as-promised'
import { LOG_DIRECTORY, LOG_PORT } from '../protocol/paths.js'
import type { Log } from './log.js'

export const HAPROXY_LOG = `${LOG_DIRECTORY}/haproxy.log`

const MAX_LINE = 2048

/** Writes what HAProxy logs (HAPROXY_LOG_LINE) to a file. @returns a function that ends it */
export async function receiveHaproxyLog(log: Log): Promise<() => Promise<void>> {
  const receiver = DgramAsPromised.createSocket({ type: 'udp4' })
  receiver.socket.on('message', (bytes: Buffer) => {
    const line = bytes.toString('utf8', 0, MAX_LINE).trimEnd().replaceAll('\n', ' | ')
    try {
      appendFileSync(HAPROXY_LOG, `${line}\n`)
    } catch {
      // No room: the line is lost, HAProxy goes on.
    }
  })
  receiver.socket.on('error', (error: Error) => log.error(`HAProxy's log cannot be received: ${error.message}`))
  try {
    await receiver.bind(LOG_PORT, '127.0.0.1')
  } catch (error) {
    log.error(`HAProxy's log cannot be received: ${error instanceof Error ? error.message : String(error)}`)
  }
  return () => receiver.close()
}
